// SPDX-License-Identifier: Apache-2.0

// Package image has the images of the repository as records: what they are, and which instances have their content.
package image

// SPDX-License-Identifier: Apache-2.0

// Package image keeps the content of images in a folder of this host, each under its SHA-256, and tells what it is by
// its first bytes. It knows no names: which content belongs to which image is for package management/image.
package image

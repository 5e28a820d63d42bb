// SPDX-License-Identifier: Apache-2.0

// Package scan looks for BMCs in the address ranges of a site, and compares what is there with what is registered. It
// logs in nowhere, and changes no node.
package scan

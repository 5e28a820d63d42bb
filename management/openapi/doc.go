// SPDX-License-Identifier: Apache-2.0

// Package openapi loads an OpenAPI document with kin-openapi and renders it as
// Markdown and HTML. It serves tests and make docs; the daemon embeds the
// rendered page and does not link this package.
package openapi

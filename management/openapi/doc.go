// SPDX-License-Identifier: Apache-2.0

// Package openapi loads an OpenAPI document with kin-openapi and renders it as
// Markdown and HTML: the overview in docs/rest.md, and the page at /v1/docs.
package openapi

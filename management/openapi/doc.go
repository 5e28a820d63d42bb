// SPDX-License-Identifier: Apache-2.0

// Package openapi makes an OpenAPI document of routes and Go types, loads it with
// kin-openapi, and renders it as Markdown and HTML: the overview in docs/rest.md, and
// the page at /v1/docs.
package openapi

// SPDX-License-Identifier: Apache-2.0

package api

import "embed"

// OpenAPI is the part of the OpenAPI 3.1 document that the routes and the types do not
// give, in YAML. README.md in this folder explains how to change it.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Source has the types of bodies and answers with their comments, which describe them in
// the document.
//
//go:embed *.go
var Source embed.FS

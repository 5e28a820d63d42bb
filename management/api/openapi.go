// SPDX-License-Identifier: Apache-2.0

package api

import "embed"

// OpenAPI is the head of the OpenAPI 3.1 document, in YAML: what concerns all routes. README.md
// in this folder explains how to change the document.
//
//go:embed openapi.yaml
var OpenAPI []byte

// Examples are the examples of the document by operation, in YAML.
//
//go:embed examples.yaml
var Examples []byte

// Source has the types of bodies and answers with their comments, which describe them in
// the document.
//
//go:embed *.go
var Source embed.FS

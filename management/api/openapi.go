// SPDX-License-Identifier: Apache-2.0

package api

import _ "embed" // for the contract

// OpenAPI is the contract as an OpenAPI 3.1 document in YAML. README.md in this
// folder explains how to change it.
//
//go:embed openapi.yaml
var OpenAPI []byte

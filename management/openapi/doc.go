// SPDX-License-Identifier: Apache-2.0

// Package openapi reads an OpenAPI document and writes it for people: as
// Markdown and as a page of HTML. It knows the part of OpenAPI 3.1 that
// management/api/openapi.yaml uses; that the document is right is the business
// of the tests of management/contract.
package openapi

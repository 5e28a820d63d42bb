// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/fleet"
)

var update = flag.Bool("update", false, "rewrite fleet.schema.json")

const schemaDocument = "../api/fleet.schema.json"

// TestSchemaDocument compares the published schema with the types of the grammar. With
// -update it rewrites the file.
func TestSchemaDocument(t *testing.T) {
	t.Parallel()

	want, err := fleet.Schema()
	errtest.None(t, err)

	if *update {
		errtest.None(t, os.WriteFile(schemaDocument, want, 0o644))
	}

	if got, err := os.ReadFile(schemaDocument); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s does not match the types (%v); to rewrite it: make docs", schemaDocument, err)
	}
}

// schema compiles the schema.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()

	text, err := fleet.Schema()
	errtest.None(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	errtest.None(t, err)

	c := jsonschema.NewCompiler()
	errtest.None(t, c.AddResource("fleet.json", doc))
	s, err := c.Compile("fleet.json")
	errtest.None(t, err)
	return s
}

// TestSchemaAccepts checks that the schema and the reader agree: about random exports,
// and about files with one mistake each.
func TestSchemaAccepts(t *testing.T) {
	t.Parallel()
	s := schema(t)

	for seed := range uint64(50) {
		data := text(t, randomSnapshot(rand.New(rand.NewPCG(seed, 2))), print.FormatJSON)

		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		errtest.None(t, err)
		if err := s.Validate(doc); err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
	}

	for _, tt := range []struct {
		file  string
		right bool
	}{
		{"fleet: 1", true},
		{"{fleet: 1, nodes: {a-1: }, groups: {g: {requires: {h: 1}, selector: a=b, vars: {x: }}}}", true},
		{"{fleet: 1, connection: {user: a, port: 22, become: true}, settings: {jobs.limit: }}", true},
		{"{fleet: 1, nodes: {a-1: {labels: {a: b, c: }, secrets: {d: keep, e: {file: f}, g: {env: H}, i: }}}}", true},
		{"{}", false},
		{"fleet: 2", false},
		{"{fleet: 1, node: {}}", false},
		{"{fleet: 1, nodes: []}", false},
		{"{fleet: 1, nodes: {a-1: {grup: a}}}", false},
		{"{fleet: 1, nodes: {a-1: {group: 1}}}", false},
		{"{fleet: 1, nodes: {a-1: {labels: {a: 1}}}}", false},
		{"{fleet: 1, groups: {g: {neds: h}}}", false},
		{"{fleet: 1, groups: {g: {name: h}}}", false},
		{"{fleet: 1, groups: {g: {requires: [h]}}}", false},
		{"{fleet: 1, connection: {port: high}}", false},
		{"{fleet: 1, secrets: {a: abc}}", false},
		{"{fleet: 1, secrets: {a: {file: b, env: c}}}", false},
		{"{fleet: 1, secrets: {a: {}}}", false},
	} {
		var doc any
		errtest.None(t, yaml.Unmarshal([]byte(tt.file), &doc))

		valid := s.Validate(doc)
		_, err := fleet.Read(api.FleetFile{Name: "f", Text: tt.file})

		if (valid == nil) != tt.right || (err == nil) != tt.right {
			t.Errorf("%s: schema: %v; reader: %v; want right: %v", tt.file, valid, err, tt.right)
		}
	}
}

// TestSchemaDescribes requires a description of every key, so that an editor shows it.
func TestSchemaDescribes(t *testing.T) {
	t.Parallel()

	text, err := fleet.Schema()
	errtest.None(t, err)

	// The settings of a connection have the names of the settings ssh.NAME.
	for _, key := range strings.Fields("settings groups nodes requires selector labels secrets file env") {
		_, after, found := strings.Cut(string(text), `"`+key+`": {`)
		if !found || !strings.Contains(after[:min(len(after), 1500)], `"description"`) {
			t.Errorf("%s has no description", key)
		}
	}
}

// TestDocumentedFile checks the example of the guide: the schema and the reader accept
// it, and its plan is as its comments describe it.
func TestDocumentedFile(t *testing.T) {
	t.Parallel()

	guide, err := os.ReadFile("../../docs/operating/fleet.md")
	errtest.None(t, err)
	_, after, _ := strings.Cut(string(guide), "```yaml\n")
	example, _, _ := strings.Cut(after, "```")

	var doc any
	errtest.None(t, yaml.Unmarshal([]byte(example), &doc))

	if err := schema(t).Validate(doc); err != nil {
		t.Error(err)
	}

	s := manager(t, "web-1-AB12 - Unallocated Discovered", "web-2-CD34 - Unallocated Discovered",
		"web-3-EF56 w Allocated Discovered", "web-4-GH78 m Allocated Discovered")
	s.Vars["global"] = configuration.Vars{"registry_token": configuration.Hidden}

	plan := compare(t, example, s, fleet.Options{})

	const want = "commission service-master web-1-AB12; commission service-worker web-2-CD34; decommission  web-3-EF56"
	if got := jobs(plan); got != want || len(plan.Obstacles) > 0 {
		t.Errorf("jobs %q, want %q; obstacles %v", got, want, plan.Obstacles)
	}

	for _, c := range plan.Changes {
		if c.Part == api.PartSecrets && (c.Key != "db_password" || c.After != configuration.Hidden) {
			t.Errorf("secret %s: %v", c.Key, c.After)
		}
	}
}

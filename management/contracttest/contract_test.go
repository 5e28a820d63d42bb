// SPDX-License-Identifier: Apache-2.0

package contracttest_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/contracttest"
)

// TestDocument checks the rules of our own document. Load has validated it as
// OpenAPI, its examples against their schemas included.
func TestDocument(t *testing.T) {
	t.Parallel()

	c := load(t)

	ids, tags := map[string]bool{}, map[string]bool{}
	for _, tag := range c.Tags {
		tags[tag.Name] = true
	}

	for _, o := range c.Operations {
		at := o.Method + " " + o.Path

		if o.OperationID == "" || ids[o.OperationID] {
			t.Errorf("%s: the operationId %q is missing or used twice", at, o.OperationID)
		}

		ids[o.OperationID] = true

		if len(o.Tags) != 1 || !tags[o.Tags[0]] {
			t.Errorf("%s: %q is not one known tag", at, o.Tags)
		}

		if o.Summary == "" || strings.HasSuffix(o.Summary, ".") {
			t.Errorf("%s: the summary %q is missing or ends with a full stop", at, o.Summary)
		}

		if len(c.Cases(o)) == 0 {
			t.Errorf("%s has no example", at)
		}

		for _, p := range o.Parameters {
			if p.Value.Description == "" || p.Value.In == "path" && p.Value.Example == nil {
				t.Errorf("%s: the parameter %s has no description or no example", at, p.Value.Name)
			}
		}
	}

	for name, s := range c.Components.Schemas {
		if s.Value.Description == "" {
			t.Errorf("the schema %s has no description", name)
		}

		for field, f := range s.Value.Properties {
			if f.Value.Description == "" {
				t.Errorf("the field %s of %s has no description", field, name)
			}
		}
	}
}

// TestProblems expects a valid problem and an example of each kind of error.
func TestProblems(t *testing.T) {
	t.Parallel()

	c := load(t)
	shown := map[string]bool{}

	for _, o := range c.Operations {
		for _, example := range c.Cases(o) {
			if example.ContentType != api.TypeProblem {
				continue
			}

			if problem, ok := example.Answer.Value.(map[string]any); ok {
				shown[fmt.Sprint(problem["type"])] = true
			}
		}
	}

	for _, row := range api.KindTable {
		p := api.ProblemOf(inventory.Errorf(row.Kind, "x"))

		text, err := json.Marshal(p)
		errtest.None(t, err)
		if err := c.Check("Problem", text); err != nil {
			t.Errorf("%s: %v", row.Kind, err)
		}

		if !shown[p.Type] {
			t.Errorf("no example shows %s", p.Type)
		}
	}
}

// TestEnums compares the statuses and states of the document with those of the code.
func TestEnums(t *testing.T) {
	t.Parallel()

	schemas := load(t).Components.Schemas

	var statuses, states, jobStatuses []any
	for _, row := range inventory.Statuses {
		statuses = append(statuses, string(row.Status))
	}

	for _, row := range inventory.States {
		states = append(states, string(row.State))
	}

	for _, status := range api.JobStatuses {
		jobStatuses = append(jobStatuses, string(status))
	}

	compareEnum(t, schemas["Status"], statuses)
	compareEnum(t, schemas["State"], states)
	compareEnum(t, schemas["JobStatus"], jobStatuses)
}

// TestOptionsAreDocumented: requests, jobs and rollouts have every option of a job under its name.
func TestOptionsAreDocumented(t *testing.T) {
	schemas := load(t).Components.Schemas

	for _, o := range inventory.Options {
		for name, has := range map[string]bool{"JobRequest": true, "Job": true, "RolloutSpec": o.Shared} {
			if p := schemas[name].Value.Properties[string(o.Field)]; has && (p == nil || p.Value.Description == "") {
				t.Errorf("%s of %s is not described", o.Field, name)
			}
		}
	}
}

func compareEnum(t *testing.T, s *openapi3.SchemaRef, want []any) {
	t.Helper()

	if !slices.Equal(s.Value.Enum, want) {
		t.Errorf("the document lists %v, the code %v", s.Value.Enum, want)
	}
}

func load(t *testing.T) *contracttest.Contract {
	t.Helper()
	c, err := contracttest.Load()
	errtest.None(t, err)
	return c
}

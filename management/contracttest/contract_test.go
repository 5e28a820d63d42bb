// SPDX-License-Identifier: Apache-2.0

package contracttest_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/contiv/cluster/inventory"
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
		if err != nil {
			t.Fatal(err)
		}

		if err := c.Check("Problem", text); err != nil {
			t.Errorf("%s: %v", row.Kind, err)
		}

		if !shown[p.Type] {
			t.Errorf("no example shows %s", p.Type)
		}
	}
}

// open lists the schemas that allow unknown fields: bodies of the first
// generation, and events, which third-party plugins may extend.
var open = []string{"Event", "HostStat", "LegacyRequest", "LegacyEvent", "LegacyEventNode", "LegacyMember"}

// types maps the schemas to their Go types.
var types = map[string]any{
	"Node":              api.Node{},
	"Before":            api.Before{},
	"Connection":        api.Connection{},
	"NodePatch":         api.NodePatch{},
	"NodeList":          api.List[api.Node]{},
	"HistoryEntry":      api.HistoryEntry{},
	"VarsChange":        api.VarsChange{},
	"VarsChangeList":    api.List[api.VarsChange]{},
	"VarsUndo":          api.VarsUndo{},
	"HistoryList":       api.List[api.HistoryEntry]{},
	"Group":             api.Group{},
	"Budget":            api.Budget{},
	"GroupList":         api.List[api.Group]{},
	"Forget":            api.Forget{},
	"Ping":              api.Ping{},
	"PingResult":        api.PingResult{},
	"HostKey":           api.HostKey{},
	"HostKeys":          api.HostKeys{},
	"HostKeyTrust":      api.HostKeyTrust{},
	"PingList":          api.List[api.PingResult]{},
	"Changed":           api.Changed{},
	"Report":            api.Report{},
	"Observation":       api.Observation{},
	"Reported":          api.Reported{},
	"Refusal":           api.Refusal{},
	"JobRequest":        api.JobRequest{},
	"Expected":          api.Expected{},
	"Job":               api.Job{},
	"JobList":           api.List[api.Job]{},
	"Plan":              api.Plan{},
	"PlanList":          api.List[api.Plan]{},
	"PlanTarget":        api.PlanTarget{},
	"PlanRule":          api.PlanRule{},
	"PlanService":       api.PlanService{},
	"PlanTime":          api.PlanTime{},
	"PlanCheck":         api.PlanCheck{},
	"PlanFindings":      api.PlanFindings{},
	"Run":               api.Run{},
	"HostResult":        api.HostResult{},
	"HostSummary":       api.HostSummary{},
	"Retry":             api.Retry{},
	"Change":            api.Change{},
	"NodeExplanation":   api.NodeExplanation{},
	"JobExplanation":    api.JobExplanation{},
	"Finding":           api.Finding{},
	"Action":            api.Action{},
	"Failure":           api.Failure{},
	"Event":             api.Event{},
	"HostStat":          api.HostStat{},
	"MergedVar":         api.MergedVar{},
	"Setting":           api.Setting{},
	"Sighting":          api.Sighting{},
	"Instance":          api.Instance{},
	"AuditList":         api.AuditList{},
	"AuditEntry":        api.AuditEntry{},
	"AuditEvent":        api.AuditEvent{},
	"AuditReport":       api.AuditReport{},
	"Identity":          api.Identity{},
	"Permission":        api.Permission{},
	"Scope":             api.Scope{},
	"Secrets":           api.Secrets{},
	"SecretKey":         api.SecretKey{},
	"SecretsRotation":   api.SecretsRotation{},
	"Notifications":     api.Notifications{},
	"Notification":      api.Notification{},
	"Deliveries":        api.Deliveries{},
	"Delivery":          api.Delivery{},
	"NotifiedEvent":     api.NotifiedEvent{},
	"Token":             api.Token{},
	"TokenList":         api.List[api.Token]{},
	"Certificate":       api.Certificate{},
	"CertificateList":   api.List[api.Certificate]{},
	"TokenRequest":      api.TokenRequest{},
	"NewToken":          api.NewToken{},
	"InstanceList":      api.List[api.Instance]{},
	"Health":            api.Health{},
	"Version":           api.Version{},
	"Problem":           api.Problem{},
	"LegacyRequest":     api.LegacyRequest{},
	"LegacyEvent":       api.LegacyEvent{},
	"LegacyEventNode":   api.LegacyEventNode{},
	"LegacyMember":      api.LegacyMember{},
	"LegacyNodeInfo":    api.LegacyNodeInfo{},
	"LegacyJobInfo":     api.LegacyJobInfo{},
	"Policies":          api.Policies{},
	"Windows":           api.Windows{},
	"RolloutSpec":       api.RolloutSpec{},
	"RolloutRequest":    api.RolloutRequest{},
	"RolloutOrder":      api.RolloutOrder{},
	"GroupStrategy":     api.GroupStrategy{},
	"GroupTags":         api.GroupTags{},
	"RolloutStrategy":   api.RolloutStrategy{},
	"RolloutGate":       api.RolloutGate{},
	"RolloutHTTPCheck":  api.RolloutHTTPCheck{},
	"RolloutCommand":    api.RolloutCommand{},
	"Rollout":           api.Rollout{},
	"RolloutCount":      api.RolloutCount{},
	"RolloutMark":       api.RolloutMark{},
	"RolloutNode":       api.RolloutNode{},
	"RolloutEvent":      api.RolloutEvent{},
	"RolloutControl":    api.RolloutControl{},
	"RolloutResume":     api.RolloutResume{},
	"RolloutAbort":      api.RolloutAbort{},
	"RolloutRetry":      api.RolloutRetry{},
	"RolloutList":       api.List[api.Rollout]{},
	"Window":            api.Window{},
	"Freeze":            api.Freeze{},
	"FreezeRequest":     api.FreezeRequest{},
	"FreezeLift":        api.FreezeLift{},
	"FleetRequest":      api.FleetRequest{},
	"FleetFile":         api.FleetFile{},
	"FleetDiff":         api.FleetDiff{},
	"FleetChange":       api.FleetChange{},
	"FleetJob":          api.FleetJob{},
	"FleetWait":         api.FleetWait{},
	"FleetStep":         api.FleetStep{},
	"FleetApply":        api.FleetApply{},
	"FleetWrite":        api.FleetWrite{},
	"FleetSecret":       api.FleetSecret{},
	"FleetPlace":        api.FleetPlace{},
	"Policy":            api.Policy{},
	"PolicyRole":        api.PolicyRole{},
	"PolicyPause":       api.PolicyPause{},
	"PolicyTurn":        api.PolicyTurn{},
	"PolicyEnable":      api.PolicyEnable{},
	"PolicyTest":        api.PolicyTest{},
	"PolicyTestNode":    api.PolicyTestNode{},
	"PolicyTested":      api.PolicyTested{},
	"PolicyOutlook":     api.PolicyOutlook{},
	"PolicyControl":     api.PolicyControl{},
	"Brake":             api.Brake{},
	"Decision":          api.Decision{},
	"GossipKey":         api.GossipKey{},
	"Laggard":           api.Laggard{},
	"GossipKeyRotation": api.GossipKeyRotation{},
	"SSHKey":            api.SSHKey{},
	"SSHKeyFile":        api.SSHKeyFile{},
	"SSHKeyRotation":    api.SSHKeyRotation{},
	"Repository":        api.Repository{},
	"Commit":            api.Commit{},
	"CommitInUse":       api.CommitInUse{},
	"RefusedCommit":     api.RefusedCommit{},
	"NodePlaybooks":     api.NodePlaybooks{},
	"RepositoryLog":     api.RepositoryLog{},
	"LogCommit":         api.LogCommit{},
	"RepositoryDiff":    api.RepositoryDiff{},
	"DiffSide":          api.DiffSide{},
	"FileChange":        api.FileChange{},
	"InventoryHost":     api.InventoryHost{},
	"InventoryList":     api.List[api.InventoryHost]{},
	"Configuration":     api.Configuration{},
	"Configured":        api.Configured{},
	"Verdict":           api.Verdict{},
	"Difference":        api.Difference{},
	"TaskFinding":       api.TaskFinding{},
}

// untyped lists the schemas without a struct.
var untyped = []string{
	"Status",
	"State",
	"Verb",
	"JobStatus",
	"Vars",
	"MergedVars",
	"Config",
	"ConfigPatch",
	"FleetFileContent",
	"LegacyVars",
	"LegacyConfig",
}

// TestTypes compares the schemas with the fields of the Go types.
func TestTypes(t *testing.T) {
	t.Parallel()

	schemas := load(t).Components.Schemas

	for name, s := range schemas {
		value, ok := types[name]
		if !ok {
			if !slices.Contains(untyped, name) {
				t.Errorf("the schema %s has no Go type: add it to this test", name)
			}

			continue
		}

		compareFields(t, name, s.Value, reflect.TypeOf(value))

		if closed := isClosed(s.Value); closed == slices.Contains(open, name) {
			t.Errorf("the schema %s: additionalProperties false is %t", name, closed)
		}
	}

	for name := range types {
		if _, ok := schemas[name]; !ok {
			t.Errorf("the schema %s is missing", name)
		}
	}

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

// isClosed reports whether an object refuses unknown fields.
func isClosed(s *openapi3.Schema) bool {
	return s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has
}

// allows reports whether the schema allows a JSON type.
func allows(s *openapi3.Schema, kind string) bool {
	if s.Type != nil {
		return s.Type.Includes(kind)
	}

	return len(s.OneOf) == 0 ||
		slices.ContainsFunc(s.OneOf, func(one *openapi3.SchemaRef) bool { return allows(one.Value, kind) })
}

func compareFields(t *testing.T, at string, s *openapi3.Schema, of reflect.Type) {
	t.Helper()

	// Fields of a request are optional for the client, with or without omitempty.
	checkRequired := isClosed(s) && !strings.HasSuffix(at, "Request") && at != "Forget"
	fields := fieldsOf(of)

	for _, f := range fields {
		p, ok := s.Properties[f.name]
		if !ok {
			t.Errorf("%s: the field %s of %s is not in the document", at, f.name, of)
			continue
		}

		if !allows(p.Value, f.kind) {
			t.Errorf("%s: %s is %s in Go and %v in the document", at, f.name, f.kind, p.Value.Type)
		}

		isTime := f.of == reflect.TypeFor[time.Time]()
		if isTime != (p.Value.Format == "date-time") && at != "Event" {
			t.Errorf("%s: %s is a time in Go: %t; its format in the document is %q", at, f.name, isTime, p.Value.Format)
		}

		if len(p.Value.Properties) > 0 && p.Ref == "" {
			compareFields(t, at+"."+f.name, p.Value, f.of)
		}

		if required := slices.Contains(s.Required, f.name); checkRequired && required == f.optional {
			t.Errorf("%s: %s is optional in Go: %t; required in the document: %t", at, f.name, f.optional, required)
		}
	}

	for name := range s.Properties {
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			t.Errorf("%s: the document has %s, and %s does not", at, name, of)
		}
	}
}

type field struct {
	name     string
	kind     string // in JSON
	of       reflect.Type
	optional bool
}

// fieldsOf returns the fields of a struct in JSON, those of embedded structs included.
func fieldsOf(of reflect.Type) []field {
	var out []field
	for i := range of.NumField() {
		f := of.Field(i)

		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			out = append(out, fieldsOf(f.Type)...)
			continue
		case !f.IsExported() || name == "-":
			continue
		}

		at := f.Type
		for at.Kind() == reflect.Pointer {
			at = at.Elem()
		}

		out = append(out, field{name: name, kind: kindOf(at), of: at, optional: strings.Contains(options, "omit")})
	}

	return out
}

func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[api.Duration]():
		return "string"
	case reflect.TypeFor[json.RawMessage]():
		return "object"
	}

	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map, reflect.Interface:
		return "object"
	case reflect.Float64:
		return "number"
	}

	return "integer"
}

func load(t *testing.T) *contracttest.Contract {
	t.Helper()

	c, err := contracttest.Load()
	if err != nil {
		t.Fatal(err)
	}

	return c
}

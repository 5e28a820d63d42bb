// SPDX-License-Identifier: Apache-2.0

package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/contiv/cluster/inventory"
)

// Question is something that a caller may want to do to a node, with the route that
// does it.
type Question struct {
	Verb    string
	Route   Route
	Meaning string
}

// Questions lists the questions that a caller may ask, in the order of the documentation: the
// requests without a job first.
var Questions = append(requests, jobQuestions()...)

// requests are the questions about requests without a job.
var requests = []Question{
	{"get", Route{http.MethodGet, "/v1/nodes/{name}"}, "read the record"},
	{"history", Route{http.MethodGet, "/v1/nodes/{name}/history"}, "read the history"},
	{"explain", Route{http.MethodGet, "/v1/nodes/{name}/explanation"}, "read why it is as it is"},
	{"ping", Route{http.MethodPost, "/v1/ping"}, "try a login over ssh"},
	{"set", Route{http.MethodPatch, "/v1/nodes/{name}"}, "change labels"},
	{"get-vars", Route{http.MethodGet, "/v1/vars/nodes/{name}"}, "read the variables"},
	{"set-vars", Route{http.MethodPatch, "/v1/vars/nodes/{name}"}, "change the variables"},
	{"forget", Route{http.MethodPost, "/v1/forget"}, "remove the record"},
}

// jobQuestions returns the verbs of jobs on nodes, unless a request has the same name.
func jobQuestions() []Question {
	var all []Question

	for _, t := range inventory.Lifecycle {
		named := slices.ContainsFunc(requests, func(q Question) bool { return q.Verb == string(t.Verb) })
		if t.ChangesStatus() && !t.TakesAddrs && !named {
			all = append(all, Question{string(t.Verb), Route{http.MethodPost, "/v1/jobs"}, t.Meaning})
		}
	}

	return all
}

// QuestionOf returns the question with the verb, or KindInvalid.
func QuestionOf(verb string) (Question, error) {
	i := slices.IndexFunc(Questions, func(q Question) bool { return q.Verb == verb })
	if i >= 0 {
		return Questions[i], nil
	}

	verbs := make([]string, len(Questions))
	for i, q := range Questions {
		verbs[i] = q.Verb
	}

	return Question{}, inventory.Errorf(inventory.KindInvalid, "there is no verb %q", verb).
		Do("the verbs are %s", strings.Join(verbs, ", "))
}

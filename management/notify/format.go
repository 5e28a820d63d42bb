// SPDX-License-Identifier: Apache-2.0

package notify

import (
	_ "embed" // for the formats
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
)

// FormatJSON is the format of the events themselves.
const FormatJSON = "json"

//go:embed formats.yaml
var formatsFile []byte

// format is the body of a webhook for one system.
type format struct {
	// Body is a document of maps, lists and texts. In each text, {summary}, {actor},
	// {detail}, {kind}, {time}, {node}, {job}, {rollout} and {manager} are replaced.
	Body any `yaml:"body"`
	// Escape replaces the markup of the system in inserted values.
	Escape map[string]string `yaml:"escape"`
}

// formats are the known formats by name, without FormatJSON.
var formats = func() map[string]format {
	var m map[string]format
	if err := yaml.Unmarshal(formatsFile, &m); err != nil {
		panic("notify: formats.yaml: " + err.Error())
	}
	return m
}()

// Formats returns the names of the formats of a webhook.
func Formats() []string {
	return append([]string{FormatJSON}, slices.Sorted(maps.Keys(formats))...)
}

// CheckFormat returns KindInvalid for an unknown format.
func CheckFormat(name string) error {
	if !slices.Contains(Formats(), name) {
		return inventory.Errorf(inventory.KindInvalid, "%q is not a format", name).
			Do("write one of %s", strings.Join(Formats(), ", "))
	}

	return nil
}

// render returns the body of a webhook. Values are inserted into a document, and never
// into its text, so that none of them can change its structure.
func render(name string, e Event) ([]byte, error) {
	// The format json is the event itself.
	f, known := formats[name]
	if !known {
		return json.Marshal(e)
	}

	detail := e.Detail
	if detail != "" {
		detail = ": " + detail
	}

	actor := e.Actor
	if actor != "" {
		actor = " (" + actor + ")"
	}

	values := []string{
		"{summary}", e.Summary, "{detail}", detail, "{actor}", actor, "{kind}", e.Kind,
		"{time}", e.Time.UTC().Format(time.RFC3339), "{node}", e.Node, "{job}", e.Job, "{rollout}", e.Rollout,
		"{manager}", e.Manager,
	}

	// The order does not matter: no text to escape is the beginning of another.
	var pairs []string
	for from, to := range f.Escape {
		pairs = append(pairs, from, to)
	}

	escape := strings.NewReplacer(pairs...)
	for i := 1; i < len(values); i += 2 {
		values[i] = escape.Replace(values[i])
	}

	return json.Marshal(fill(f.Body, strings.NewReplacer(values...)))
}

// fill returns the document with its texts replaced.
func fill(document any, values *strings.Replacer) any {
	// Numbers and truth values stay as they are.
	switch d := document.(type) {
	case string:
		return values.Replace(d)
	case []any:
		out := make([]any, len(d))
		for i := range d {
			out[i] = fill(d[i], values)
		}

		return out
	case map[string]any:
		out := make(map[string]any, len(d))
		for key := range d {
			out[key] = fill(d[key], values)
		}

		return out
	default:
		return document
	}
}

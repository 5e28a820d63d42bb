// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
)

type sample struct {
	Name string   `yaml:"name"`
	Size int      `yaml:"size"`
	List []string `yaml:"list"`
	Skip string   `yaml:"-"`
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sample.yaml")

	load := func(text string) (sample, *yaml.Node, error) {
		t.Helper()

		errtest.None(t, os.WriteFile(path, []byte(text), 0o600))

		s := sample{Name: "default"}
		top, err := Load(path, &s, "see the manual")

		return s, top, err
	}

	s, top, err := load("size: 3\n")
	if err != nil || s.Name != "default" || s.Size != 3 || top == nil || top.Kind != yaml.MappingNode {
		t.Fatalf("%+v, %v, %v", s, top, err)
	}
	if _, top, err := load("# nothing\n"); err != nil || top != nil {
		t.Fatalf("an empty file: %v, %v", top, err)
	}

	for text, want := range map[string]string{
		"size: many\n":                           "line 1: `many` is not a whole number",
		"name: a\nname: b\n":                     "line 2",
		"nonsense: 1\n":                          "line 1: key nonsense not found",
		"list: {a: b}\n":                         "a mapping is not a list",
		"name: a\n---\nname: b\n":                "more than one document",
		"size:\n\t- 1\n":                         "indent with spaces",
		strings.Repeat("# comment\n", maxSize/8): "larger than 1 MiB",
	} {
		_, _, err := load(text)
		if inventory.KindOf(err) != inventory.KindInvalid || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.20q: %v, want %q and the file in it", text, err, want)
		}
	}

	if _, err := Load("/nonexistent", &s, "see the manual"); err == nil ||
		!strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}
}

func TestCheckKeys(t *testing.T) {
	var doc yaml.Node
	errtest.None(t, yaml.Unmarshal([]byte("name: a\nskip: b\n"), &doc))

	err := CheckKeys(doc.Content[0], reflect.TypeFor[sample](), "sample")
	if err == nil || err.Error() != "line 2: field skip not found in sample" {
		t.Error(err)
	}

	if err := CheckKeys(doc.Content[0].Content[1], reflect.TypeFor[sample](), "sample"); err == nil {
		t.Error("a scalar passed for a mapping")
	}
}

func TestDecodeOrOff(t *testing.T) {
	for _, tt := range []struct {
		text string
		want sample
		off  bool
		err  string
	}{
		{text: "size: 3", want: sample{Name: "default", Size: 3}},
		{text: "off", want: sample{Name: "default"}, off: true},
		{text: "'off'", want: sample{Name: "default"}, off: true},
		{text: "false", want: sample{Name: "default"}, off: true},
		{text: "on", err: `line 1: sample is "on"; write off, or a mapping`},
		{text: "skip: b", err: "line 1: field skip not found in sample"},
		{text: "size: many", err: "cannot unmarshal"},
	} {
		var doc yaml.Node
		errtest.None(t, yaml.Unmarshal([]byte(tt.text), &doc))

		got := sample{Name: "default"}
		off, err := DecodeOrOff(doc.Content[0], "sample", &got)

		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: got the error %v, want %q in it", tt.text, err, tt.err)
			}
		} else if err != nil || off != tt.off || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: got %+v, off %t, %v", tt.text, got, off, err)
		}
	}
}

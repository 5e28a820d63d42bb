// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/contiv/cluster/configuration"
)

// FuzzAssignments expects KEY=VALUE to be refused, or to become a variable that JSON
// carries unchanged: its name and, for plain text, its value.
func FuzzAssignments(f *testing.F) {
	for _, s := range []string{
		"a=1", "a=007", "a=1.10", "a=", "=x", "a", "a=null", `a="1"`, "a={b: 1}", `a={"b":1}`, "a={{ x }}", "a='x",
		"a=[1,2", "a=yes", "a=1e5", "a=x=y",
		"a=12345678901234567890", "\xff=1", "a=\xff", "a=-0",
	} {
		f.Add(s)
	}

	f.Fuzz(func(t *testing.T, arg string) {
		vars, err := assignments([]string{arg})
		if err != nil {
			return
		}
		if len(vars) != 1 {
			t.Fatalf("%q became %v", arg, vars)
		}

		for name, v := range vars {
			if !bytes.HasPrefix([]byte(arg), []byte(name+"=")) || v == nil {
				t.Fatalf("%q became %q=%v", arg, name, v)
			}

			text, isText := v.(string)

			sent, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%q: %v", arg, err)
			}
			back, err := configuration.ParseValue(append([]byte(" "), sent...))
			if arrived, ok := back.(string); isText && err == nil && (!ok || arrived != text) {
				t.Fatalf("%q is sent as %s, which is %v", arg, sent, back)
			}
		}
	})
}

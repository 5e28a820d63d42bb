// SPDX-License-Identifier: Apache-2.0

package selector

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/labels"
)

// TestFaults: an error has the position of the fault in characters, and names it.
func TestFaults(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]string{
		"name=a-1,rack in (r1":     "18: this parenthesis is not closed",
		"rack in (r1,(r2)":         `13: a value belongs here, not "("`,
		"rack in (r1 r2)":          `13: a comma or ) belongs here, not "r2"`,
		"rack in r1":               `9: the values of in belong here in parentheses, such as (r1,r2), not "r1"`,
		"rack notin":               "11: the values of notin belong here in parentheses, such as (r1,r2), not the end",
		"rack=r1)":                 `8: a comma or the end belongs here, not ")"`,
		"rack=)":                   `6: a value belongs here, not ")"`,
		"rack==r1==r2":             `9: a comma or the end belongs here, not "=="`,
		"rack== ==r1":              `8: a value belongs here, not "=="`,
		"rack=r1,":                 "9: a field or a label belongs here, not the end",
		"rack=r1,,status=Done":     `9: a field or a label belongs here, not ","`,
		",rack=r1":                 `1: a field or a label belongs here, not ","`,
		"=r1":                      `1: a field or a label belongs here, not "="`,
		"!":                        "2: a field or a label belongs here, not the end",
		"!rack=r1":                 `6: a comma or the end belongs here, not "="`,
		"rack r1":                  `6: one of =, !=, in and notin belongs here, not "r1"`,
		"größe=1":                  `1: "größe" is neither a field nor a valid label`,
		"rack=ä,row in (ö":         `6: "ä" is not a valid value: it has letters`,
		"row=ab, rack in (ö)":      `18: "ö" is not a valid value: it has letters`,
		"a=b,c=d\u00e9,":           `7: "dé" is not a valid value`,
		"addr=fd00::1,rack in (a":  "22: this parenthesis is not closed",
		"slot>many":                `6: "many" is not a number`,
		"slot>":                    "6: a number is missing after >",
		"rack=r1 \x00,status=Done": "9: a zero byte belongs to no field",
		" rack = r1 , row = = 2 ":  `20: a value belongs here, not "="`,
	} {
		_, err := Parse(text, func(string) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "is malformed at character "+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestFaultsFollowTheParser compares both grammars: there is a fault exactly where the parser
// refuses a selector.
func TestFaultsFollowTheParser(t *testing.T) {
	t.Parallel()

	none := errors.New("no fault")
	parts := []string{
		"rack", "in", "notin", "r1", "7", "(", ")", ",", "=", "==", "!=", "!", ">", "<", " ", "  ", "é", "-x", "a/b/c",
		"a/b", "\t", "\n", ".", "x=y,", "row in (a,b)", "\v", "\u00a0", "\xff",
	}

	r := rand.New(rand.NewPCG(1, 2))

	for range 50_000 {
		var b strings.Builder
		for range r.IntN(8) {
			b.WriteString(parts[r.IntN(len(parts))])
		}

		// A blank selector is no matter of the grammar.
		text := "rack," + b.String()
		_, err := labels.ParseToRequirements(text)
		f := faultOf(text, none)

		if (err != nil) != (f.problem != none.Error()) {
			t.Fatalf("%q: %v, and %+v", text, err, f)
		}

		if f.at < 0 || f.at > len(text) || f.character(text) > utf8.RuneCountInString(text)+1 {
			t.Fatalf("%q: %+v", text, f)
		}
	}
}

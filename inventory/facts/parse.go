// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// MaxOutput bounds the facts as a machine sends them, in bytes.
const MaxOutput = 1 << 20

// The bounds of what is kept.
const (
	maxText   = 256     // bytes of a text
	maxList   = 4096    // elements of a list
	maxNumber = 1 << 53 // exact in every reader of JSON
	maxFacts  = 512 << 10
)

// Parse reads facts that a machine has sent, and refuses what is no facts, or beyond the bounds. Texts are cut, and
// control characters in them replaced. Unknown fields are ignored.
func Parse(output []byte) (Facts, error) {
	refuse := func(format string, args ...any) (Facts, error) {
		return Facts{}, fmt.Errorf(format+"; look at what clusterm-facts prints on the machine", args...)
	}

	if len(output) > MaxOutput {
		return refuse("the facts have more than %d bytes", MaxOutput)
	}

	var f Facts
	if err := json.Unmarshal(output, &f); err != nil {
		return refuse("the machine has not answered with facts: %w", err)
	}

	if f.Schema < Schema {
		return refuse("the machine has not answered with facts: the schema is %d", f.Schema)
	}
	if err := f.Bound(); err != nil {
		return refuse("%w", err)
	}

	return f, nil
}

// Bound cuts texts and replaces control characters in them, and returns an error if the facts are beyond the bounds.
func (f *Facts) Bound() error {
	if err := clean("", reflect.ValueOf(f).Elem()); err != nil {
		return fmt.Errorf("the facts are wrong: %w", err)
	}

	const sha256Bytes = 32
	if sum, err := hex.DecodeString(f.System.TPM); err != nil || len(sum) != 0 && len(sum) != sha256Bytes {
		return fmt.Errorf("the facts are wrong: system.tpm is %q, and no SHA-256", f.System.TPM)
	}

	f.System.TPM = strings.ToLower(f.System.TPM)

	kept, err := json.Marshal(f)
	if err != nil || len(kept) > maxFacts {
		return fmt.Errorf("the facts have %d bytes; the limit is %d", len(kept), maxFacts)
	}

	return nil
}

// Known returns a text of a vendor without the space around it; "" for the words of vendors that know none.
func Known(text string) string {
	text = strings.TrimSpace(text)

	switch strings.ToLower(text) {
	case "unknown", "not specified", "not provided", "not present", "not available", "none", "null", "n/a", "na",
		"default string", "to be filled by o.e.m.", "system serial number", "no dimm", "empty":
		return ""
	}

	return text
}

// clean bounds everything in a value at the path.
func clean(path string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text(v.String()))
	case reflect.Int:
		if n := v.Int(); n < 0 || n > maxNumber {
			return fmt.Errorf("%s is %d", path, n)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return clean(path, v.Elem())
		}
	case reflect.Slice:
		if v.Len() > maxList {
			return fmt.Errorf("%s has %d elements; the limit is %d", path, v.Len(), maxList)
		}

		for i := range v.Len() {
			if err := clean(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			if err := clean(strings.TrimPrefix(path+"."+name, "."), v.Field(i)); err != nil {
				return err
			}
		}
	}

	return nil
}

// text returns a text in one line, without control characters, and cut to the bound.
func text(s string) string {
	oneLine := strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}

		return r
	}, s))

	const mark = " …"
	if len(oneLine) <= maxText {
		return oneLine
	}
	return strings.ToValidUTF8(oneLine[:maxText-len(mark)], "") + mark
}

// SPDX-License-Identifier: Apache-2.0

package setting

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ManualPage returns the manual page clusterm.yaml(5), made of the comments in the
// example file.
func ManualPage() ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(Example, &file); err != nil {
		return nil, err
	}

	b := bytes.NewBufferString(`.\" SPDX-License-Identifier: Apache-2.0
.TH CLUSTERM.YAML 5 "" clusterm "File formats"
.SH NAME
clusterm.yaml \- configuration of the cluster manager clusterm
.SH SYNOPSIS
/etc/clusterm/clusterm.yaml
.SH DESCRIPTION
`)
	intro, _, _ := strings.Cut(string(Example), "\n\n")
	_, intro, _ = strings.Cut(intro, "\n") // the license
	manualText(b, intro)
	b.WriteString(".SH KEYS\n")

	if err := manualKeys(b, file.Content[0], ""); err != nil {
		return nil, err
	}

	b.WriteString(".SH SEE ALSO\nclusterm(8), /usr/share/doc/clusterm/docs/operating/configuration.md\n")

	return b.Bytes(), nil
}

// manualKeys writes the keys of a mapping. Keys without a comment share that of the
// key before.
func manualKeys(b *bytes.Buffer, mapping *yaml.Node, prefix string) error {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value

		isSection := value.Kind == yaml.MappingNode && len(value.Content) > 0
		if isSection {
			fmt.Fprintf(b, ".SS %s\n", roff(name))
			manualText(b, key.HeadComment)

			if err := manualKeys(b, value, name+"."); err != nil {
				return err
			}

			continue
		}

		text, err := defaultOf(value)
		if err != nil {
			return err
		}

		b.WriteString(map[bool]string{true: ".TQ\n", false: ".TP\n"}[isShared(mapping, i)])
		fmt.Fprintf(b, "\\fB%s\\fR%s\n", roff(name), text)

		if !isShared(mapping, i+2) {
			first := i
			for isShared(mapping, first) {
				first -= 2
			}

			manualText(b, mapping.Content[first].HeadComment)
		}
	}

	return nil
}

// isShared reports whether the key at i has the comment of the key before.
func isShared(mapping *yaml.Node, i int) bool {
	if i < 2 || i >= len(mapping.Content) || mapping.Content[i].HeadComment != "" {
		return false
	}

	// A mapping of keys is a section of its own.
	before := i - 2

	return len(mapping.Content[before+1].Content) == 0 &&
		(mapping.Content[before].HeadComment != "" || isShared(mapping, before))
}

// defaultOf describes a default value.
func defaultOf(value *yaml.Node) (string, error) {
	flow := *value
	flow.Style = yaml.FlowStyle
	flow.HeadComment, flow.FootComment, flow.LineComment = "", "", ""

	text, err := yaml.Marshal(&flow)
	if err != nil {
		return "", err
	}
	words := strings.Join(strings.Fields(string(text)), " ")
	if slices.Contains([]string{`""`, "", "[]", "{}", "null"}, words) {
		return "", nil
	}
	return " (default: " + roff(words) + ")", nil
}

var codePattern = regexp.MustCompile("`([^`]*)`")

// manualText writes a comment: paragraphs, and indented lines as they are.
func manualText(b *bytes.Buffer, comment string) {
	verbatim := false

	for line := range strings.Lines(comment) {
		line = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "#"), "\n")
		indented := strings.HasPrefix(line, "   ")

		if indented != verbatim {
			b.WriteString(map[bool]string{true: ".EX\n", false: ".EE\n"}[indented])
		}

		verbatim = indented

		switch line = roff(strings.TrimPrefix(line, " ")); {
		case line == "":
			b.WriteString(".PP\n")
		case verbatim:
			fmt.Fprintf(b, "%s\n", line)
		default:
			fmt.Fprintf(b, "%s\n", codePattern.ReplaceAllString(line, `\fB$1\fR`))
		}
	}

	if verbatim {
		b.WriteString(".EE\n")
	}
}

// roff escapes text for troff.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

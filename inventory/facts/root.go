// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Hint is a hint for the disk of the operating system, by its name in OpenStack Ironic.
type Hint struct {
	Name string
	// of returns what a disk has, in small letters; nil: the facts do not have it.
	of func(d Disk, want string) string
}

// Hints lists every hint that a root device may have.
var Hints = []Hint{
	{"by_path", func(d Disk, want string) string { return inDev("/dev/disk/by-path/", d.Path, want) }},
	{"hctl", nil},
	{"model", func(d Disk, _ string) string { return d.Model }},
	{"name", func(d Disk, want string) string { return inDev("/dev/", d.Name, want) }},
	{hintRotational, func(d Disk, _ string) string { return strconv.FormatBool(d.Rotational) }},
	{"serial", func(d Disk, _ string) string { return d.Serial }},
	{hintSize, func(d Disk, _ string) string { return strconv.Itoa(d.SizeBytes >> 30) }},
	{"vendor", func(d Disk, _ string) string { return d.Vendor }},
	{"wwn", func(d Disk, want string) string { return wwn(d.WWN, want) }},
	{"wwn_vendor_extension", nil},
	{"wwn_with_extension", func(d Disk, _ string) string { return d.WWN }},
}

const (
	hintSize       = "size" // GiB, rounded down
	hintRotational = "rotational"
	// maxHint bounds the text of a hint, in bytes.
	maxHint = 256
	// minRoot is the least size of a disk that a strategy chooses, in bytes: 4 GiB, as in Ironic.
	minRoot = 4 << 30
	// maxListed bounds the disks in a message.
	maxListed = 24
)

// inDev returns the name of a disk as the hint has it: with its directory in /dev, or without.
func inDev(dir, name, want string) string {
	if name != "" && strings.Contains(want, "/dev/") {
		return dir + name
	}
	return name
}

// wwn returns a World Wide Name without its extension, unless the hint has one.
func wwn(of, want string) string {
	const plain = len("0x") + 16
	if strings.HasPrefix(of, "0x") && len(of) > plain && !strings.Contains(want, strings.ToLower(of)) {
		return of[:plain]
	}
	return of
}

// HintNames returns the names of all hints.
func HintNames() []string {
	names := make([]string, len(Hints))
	for i, h := range Hints {
		names[i] = h.Name
	}

	return names
}

// operators are those of Ironic. A longer one comes before one that it begins with.
var operators = []string{
	"<in>",
	"<all-in>",
	"<or>",
	"<range-in>",
	"s==",
	"s!=",
	"s>=",
	"s<=",
	"s>",
	"s<",
	"==",
	"!=",
	">=",
	"<=",
	"=",
	">",
	"<",
}

// condition is the value of a hint.
type condition struct {
	operator string
	want     string // in small letters
}

// conditionOf reads the value of a hint.
func conditionOf(hint string, value any) (condition, error) {
	var text string

	switch value := value.(type) {
	case string:
		text = value
	case bool:
		text = strconv.FormatBool(value)
	case float64:
		text = strconv.FormatFloat(value, 'f', -1, 64)
	case int:
		text = strconv.Itoa(value)
	default:
		return condition{}, errors.New("its value is neither a text nor a number, true or false")
	}

	text = strings.ToLower(strings.TrimSpace(text))
	if text == "" || len(text) > maxHint || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return condition{}, fmt.Errorf("its value is empty, longer than %d bytes, or has control characters", maxHint)
	}

	c := condition{want: text}

	for _, operator := range operators {
		if rest, has := strings.CutPrefix(text, operator); has {
			c = condition{operator, strings.TrimSpace(rest)}
			break
		}
	}

	if c.operator == "" {
		c.operator = "s=="
		if hint == hintSize {
			c.operator = "=="
		}
	}

	return c, c.check(hint)
}

// rangeForm is the value of <range-in>: brackets include the limit, parentheses do not.
var rangeForm = regexp.MustCompile(`^([\[(])\s*(\S+)\s+(\S+?)\s*([\])])$`)

func (c condition) check(hint string) error {
	var numbers []string

	switch {
	case hint == hintRotational:
		if c.want != "true" && c.want != "false" || c.operator != "s==" {
			return fmt.Errorf("%q is neither true nor false", c.want)
		}
	case c.want == "":
		return fmt.Errorf("nothing follows %s", c.operator)
	case c.operator == "<range-in>":
		m := rangeForm.FindStringSubmatch(c.want)
		if m == nil {
			return fmt.Errorf("%q is no range such as [ 100 500 ]", c.want)
		}

		numbers = m[2:4]
	case c.operator[0] != 's' && c.operator[0] != '<' || c.operator == "<" || c.operator == "<=":
		numbers = []string{c.want}
	}

	for _, n := range numbers {
		if _, err := strconv.ParseFloat(n, 64); err != nil {
			return fmt.Errorf("%q is no number", n)
		}
	}

	return nil
}

// holds reports whether a value of a disk meets the condition.
func (c condition) holds(value string) bool {
	value = strings.ToLower(strings.TrimSpace(value))
	if value == "" {
		return false // the facts do not have it
	}

	switch c.operator {
	case "<in>":
		return strings.Contains(value, c.want)
	case "<all-in>":
		return !slices.ContainsFunc(strings.Fields(c.want), func(w string) bool { return !strings.Contains(value, w) })
	case "<or>":
		for choice := range strings.SplitSeq(c.want, "<or>") {
			if strings.TrimSpace(choice) == value {
				return true
			}
		}

		return false
	case "<range-in>":
		m := rangeForm.FindStringSubmatch(c.want)
		low, high := condition{">=", m[2]}, condition{"<=", m[3]}

		if m[1] == "(" {
			low.operator = ">"
		}
		if m[4] == ")" {
			high.operator = "<"
		}

		return low.holds(value) && high.holds(value)
	}

	if operator, texts := strings.CutPrefix(c.operator, "s"); texts {
		return ordered(operator, strings.Compare(value, c.want))
	}

	has, err := strconv.ParseFloat(value, 64)
	want, _ := strconv.ParseFloat(c.want, 64)

	return err == nil && ordered(c.operator, cmp.Compare(has, want))
}

func ordered(operator string, compared int) bool {
	switch operator {
	case "==":
		return compared == 0
	case "!=":
		return compared != 0
	case ">=", "=": // = is >= in Ironic
		return compared >= 0
	case "<=":
		return compared <= 0
	case ">":
		return compared > 0
	default:
		return compared < 0
	}
}

// CheckHints returns every mistake in hints for a root device.
func CheckHints(hints map[string]any) error {
	var errs []error

	for _, name := range slices.Sorted(maps.Keys(hints)) {
		if !slices.Contains(HintNames(), name) {
			errs = append(errs, fmt.Errorf("%.60q is no hint; use %s", name, strings.Join(HintNames(), ", ")))
			continue
		}

		if _, err := conditionOf(name, hints[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}

	return errors.Join(errs...)
}

// RootDevice returns the disk that all hints fit, the first one by name if there are several. Without hints, it is the
// one that Ironic takes: the smallest of at least 4 GiB. The error names the disks that there are.
func RootDevice(hints map[string]any, disks []Disk) (Disk, error) {
	if len(hints) == 0 {
		return Smallest.Choose(disks)
	}

	if err := CheckHints(hints); err != nil {
		return Disk{}, err
	}

	var (
		fitting = slices.Clone(disks)
		wanted  []string
		unknown []string
	)

	for _, h := range Hints {
		value, given := hints[h.Name]
		if !given {
			continue
		}

		wanted = append(wanted, fmt.Sprintf("%s=%v", h.Name, value))

		if h.of == nil {
			unknown = append(unknown, h.Name)
			fitting = nil

			continue
		}

		c, err := conditionOf(h.Name, value)
		if err != nil {
			return Disk{}, err
		}

		fitting = slices.DeleteFunc(fitting, func(d Disk) bool { return !c.holds(h.of(d, c.want)) })
	}

	if len(fitting) > 0 {
		return slices.MinFunc(fitting, func(a, b Disk) int { return byName(a.Label(), b.Label()) }), nil
	}

	note := ""
	if len(unknown) > 0 {
		note = fmt.Sprintf(" (the facts of disks have no %s)", strings.Join(unknown, ", "))
	}

	return Disk{}, fmt.Errorf("no disk fits the %s %s%s: %s",
		plural(len(wanted), "hint"), strings.Join(wanted, " "), note, listed(disks))
}

// DescribeRoot says in words which disk RootDevice returns, with the reason, or why it returns none.
func DescribeRoot(hints map[string]any, disks []Disk) string {
	d, err := RootDevice(hints, disks)

	switch {
	case err != nil:
		return err.Error()
	case len(hints) == 0:
		return fmt.Sprintf("%s, %s, the smallest disk, without a hint", d.Label(), d.Size())
	}

	var by []string
	for _, name := range slices.Sorted(maps.Keys(hints)) {
		by = append(by, fmt.Sprintf("%s=%v", name, hints[name]))
	}

	return fmt.Sprintf("%s, %s, by the %s %s", d.Label(), d.Size(), plural(len(by), "hint"), strings.Join(by, " "))
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// byName orders names of the kernel: sdb before sdaa.
func byName(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) }

// listed describes the disks that there are.
func listed(disks []Disk) string {
	if len(disks) == 0 {
		return "it has no disk"
	}

	texts := make([]string, 0, len(disks))

	for i, d := range disks {
		if i == maxListed {
			texts = append(texts, fmt.Sprintf("and %d more", len(disks)-i))
			break
		}

		text := d.Label() + " " + d.Size()
		for _, part := range []string{d.Vendor, d.Model, d.Serial} {
			if part != "" {
				text += " " + part
			}
		}

		texts = append(texts, text)
	}

	return "it has " + strings.Join(texts, ", ")
}

// Strategy chooses the disk of the operating system without hints.
type Strategy string

// The strategies.
const (
	Smallest Strategy = "smallest"
	Largest  Strategy = "largest"
)

// Strategies lists every strategy.
var Strategies = []Strategy{Smallest, Largest}

// Choose returns a disk. It is the same one after each boot: of disks of one size, the place decides, then the serial
// number and the name. Removable disks and those of less than 4 GiB are never chosen.
func (s Strategy) Choose(disks []Disk) (Disk, error) {
	fitting := slices.DeleteFunc(slices.Clone(disks), func(d Disk) bool { return d.Removable || d.SizeBytes < minRoot })
	if len(fitting) == 0 {
		return Disk{}, fmt.Errorf("no fixed disk has 4 GiB: %s", listed(disks))
	}

	return slices.MinFunc(fitting, func(a, b Disk) int {
		bySize := cmp.Compare(a.SizeBytes, b.SizeBytes)
		if s == Largest {
			bySize = -bySize
		}

		return cmp.Or(
			bySize,
			strings.Compare(a.Path, b.Path),
			strings.Compare(a.Serial, b.Serial),
			byName(a.Label(), b.Label()),
		)
	}), nil
}

// HintsFor returns the hint that fits only one of the disks: by its WWN, serial number or place, which stay the same,
// or else by its name; nil: it has none of them.
func HintsFor(chosen Disk, disks []Disk) map[string]any {
	for _, h := range []struct{ name, value string }{
		{"wwn_with_extension", chosen.WWN}, {"serial", chosen.Serial}, {"by_path", chosen.Path},
	} {
		hints := map[string]any{h.name: h.value}
		fits := 0

		for i := range disks {
			if _, err := RootDevice(hints, disks[i:i+1]); err == nil {
				fits++
			}
		}

		// A text that reads as an operator fits other disks, or none.
		if only, err := RootDevice(hints, disks); err == nil && fits == 1 && only == chosen {
			return hints
		}
	}

	if chosen.Name == "" {
		return nil // a BMC does not know the names of the kernel
	}

	return map[string]any{"name": "/dev/" + chosen.Name}
}

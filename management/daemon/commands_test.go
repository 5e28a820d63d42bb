// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/contiv/cluster/inventory/errtest"
)

var (
	spanPattern    = regexp.MustCompile("`([^`]+)`")
	promptPattern  = regexp.MustCompile(`^(# |\$ |host\d\$ |host\d# )`)
	optionPattern  = regexp.MustCompile("^\\| `(-[^`]*)` \\|")
	placeholder    = regexp.MustCompile(` [A-Z][A-Z@:=]*$`)
	targetPattern  = regexp.MustCompile(`(?m)^([a-z-]+):.*##`)
	endOfCommand   = regexp.MustCompile(`[|;&<>]| +# |\$\(|\)`)
	sectionPattern = regexp.MustCompile(`^## (clusterctl .*)$`)
	commandName    = regexp.MustCompile(`^[a-z][a-z-]*$`)
)

// options are the options of a command; true: the option takes a value.
type options map[string]bool

// TestDocumentedCommands checks that each clusterctl command and each make
// target in the markdown exists, with its options.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()

	pages := markdown(t)
	commands := commandsOf(pages["docs/cli.md"])
	targets := makeTargets(t)

	checked := 0
	for path, text := range pages {
		if path == "docs/cli.md" {
			continue
		}

		for _, line := range snippets(text) {
			words := strings.Fields(endOfCommand.Split(line, 2)[0])
			if len(words) < 2 {
				continue
			}

			problem := ""
			switch {
			case words[0] == "make":
				problem = checkMake(words[1:], targets)
			case words[0] == "clusterctl":
				problem = checkCommand(words, commands)
			case commands["clusterctl "+words[0]+" "+words[1]] != nil:
				problem = checkCommand(append([]string{"clusterctl"}, words...), commands)
			default:
				continue
			}

			checked++

			if problem != "" {
				t.Errorf("%s: %s: %s", path, line, problem)
			}
		}
	}

	if len(commands) < 20 || len(targets) < 10 || checked < 100 {
		t.Fatalf("%d commands, %d targets, %d uses: the search misses some", len(commands), len(targets), checked)
	}
}

// checkMake returns the defect of a call of make, or "".
func checkMake(args []string, targets map[string]bool) string {
	for _, arg := range args {
		isTarget := !strings.Contains(arg, "=") && !strings.HasPrefix(arg, "-")
		if isTarget && !targets[arg] {
			return "the Makefile has no target " + arg
		}
	}

	return ""
}

// checkCommand returns the defect of a call of clusterctl, or "".
func checkCommand(words []string, commands map[string]options) string {
	command, args := "clusterctl", words[1:]
	for len(args) > 0 && hasPrefix(commands, command+" "+args[0]) {
		command, args = command+" "+args[0], args[1:]
	}

	known, isLeaf := commands[command]

	isName := len(args) > 0 && commandName.MatchString(args[0])
	if (!isLeaf || command == "clusterctl") && isName {
		return "there is no such command"
	}

	common := commands["clusterctl"]
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(args[i], "=")
		if !strings.HasPrefix(name, "-") || name == "-" {
			continue
		}
		takesValue, ok := known[name]
		if !ok {
			takesValue, ok = common[name]
		}
		if !ok {
			return command + " has no option " + name
		}

		// The value may begin with a hyphen as well.
		if takesValue && !hasValue {
			i++
		}
	}

	return ""
}

// hasPrefix reports whether path names a command or a group of commands.
func hasPrefix(commands map[string]options, path string) bool {
	for command := range commands {
		if command == path || strings.HasPrefix(command, path+" ") {
			return true
		}
	}

	return false
}

// commandsOf returns the options of each command in the reference, which a test
// of clusterctl compares with the program. The root holds the common options.
func commandsOf(reference string) map[string]options {
	current := options{}
	out := map[string]options{"clusterctl": current}

	for line := range strings.Lines(reference) {
		if section := sectionPattern.FindStringSubmatch(strings.TrimSpace(line)); section != nil {
			current = options{}
			out[section[1]] = current
		}

		row := optionPattern.FindStringSubmatch(line)
		if row == nil {
			continue
		}
		takesValue := placeholder.MatchString(row[1])
		for name := range strings.SplitSeq(placeholder.ReplaceAllString(row[1], ""), ", ") {
			// A switch has two forms, as in --[no-]become.
			current[strings.Replace(name, "[no-]", "", 1)] = takesValue
			current[strings.Replace(name, "[no-]", "no-", 1)] = takesValue
		}
	}

	return out
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()

	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	errtest.None(t, err)

	out := map[string]bool{}
	for _, match := range targetPattern.FindAllStringSubmatch(string(text), -1) {
		out[match[1]] = true
	}

	return out
}

// snippets returns the lines of code blocks, without prompts, and the code
// spans of a page.
func snippets(text string) []string {
	var out []string

	inCode := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)

		switch {
		case fencePattern.MatchString(line):
			inCode = !inCode
		case inCode:
			out = append(out, promptPattern.ReplaceAllString(line, ""))
		default:
			for _, match := range spanPattern.FindAllStringSubmatch(line, -1) {
				out = append(out, match[1])
			}
		}
	}

	return out
}

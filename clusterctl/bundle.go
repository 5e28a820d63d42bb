// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// What bounds a bundle, in bytes before it is compressed and in numbers.
const (
	bundleBytes = 64 << 20
	bundleLog   = 1 << 20 // of one log: its end
	bundleJobs  = 20      // that failed or run, the newest
	bundleNodes = 100     // that something is wrong with
	bundleSteps = 200     // entries of one history
	journalTime = 20 * time.Second
)

func (a *app) supportBundle() *cli.Command {
	return a.leaf(leaf{
		name:  "support-bundle",
		args:  "[FILE]",
		max:   1,
		usage: "collect what a report about a problem needs into a .tar.gz file",
		about: "Versions, configuration, health, metrics, instances, nodes and jobs; output and events of the jobs that failed last; history and explanation of " +
			"nodes that something is wrong with.\n" +
			"Left out are the values of variables, and what looks like a password, token or private key; a task may still have printed " +
			"something you would not show: look before you send it. README.txt inside says what is there and what was left out. Only you can read the file (mode 0600).",
		flags: []cli.Flag{
			&cli.BoolFlag{Name: "journal", Usage: "add the newest lines of the journal of clusterm on this host"},
		},
		formats:  []string{},
		examples: []string{"clusterctl support-bundle", "clusterctl support-bundle --journal report.tar.gz"},
		run: func(ctx context.Context, c *call) error {
			name := "clusterm-support-" + time.Now().UTC().Format("20060102T150405Z") + ".tar.gz"
			if len(c.args) > 0 {
				name = c.args[0]
			}

			return c.bundle(ctx, name)
		},
	})
}

// bundle is one archive being written.
type bundle struct {
	*call
	tar    *tar.Writer
	now    time.Time
	size   int64
	inside []string // a line a file
	out    []string // what was left out, and why
	gone   error    // the manager does not answer
}

// bundle writes the archive; the file is there when all of it is.
func (c *call) bundle(ctx context.Context, name string) error {
	if _, err := os.Lstat(name); err == nil {
		return usagef("%s is there already", name).do("name another file, or remove it")
	}

	part := name + ".part"

	f, err := os.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%s is there already, perhaps of a run that was broken off", part).do("remove it")
	}

	if err != nil {
		return failf(ExitFailed, "the bundle cannot be written: %v", err)
	}

	defer func() {
		_ = f.Close()       // a second time where all went well
		_ = os.Remove(part) // likewise: it has its name by then
	}()
	zip := gzip.NewWriter(f)

	b := &bundle{call: c, tar: tar.NewWriter(zip), now: time.Now()}
	if err := b.collect(ctx); err != nil {
		return err
	}

	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if err := errors.Join(b.tar.Close(), zip.Close(), f.Sync(), f.Close()); err != nil {
		return failf(ExitFailed, "the bundle cannot be written: %v", err)
	}

	if err := os.Rename(part, name); err != nil {
		return failf(ExitFailed, "the bundle cannot be written: %v", err)
	}

	for _, line := range b.out {
		c.say("left out: %s", line)
	}

	c.say("%d files; README.txt says what they are. Look through them before you send them.", len(b.inside))

	if err := c.write([]byte(name + "\n")); err != nil {
		return err
	}

	if b.gone != nil {
		message, remedy := explain(b.gone)
		return failf(ExitUnreachable, "the bundle is not whole: %s", message).do("%s", remedy)
	}

	return nil
}

func (b *bundle) collect(ctx context.Context) error {
	m := b.manager
	if err := b.json("clusterctl.json", "version of clusterctl, and which manager it asked", map[string]any{
		"version": b.app.Version, "manager": b.manager.Where(), "time": b.now.UTC(),
	}); err != nil {
		return err
	}

	steps := []struct {
		name, what string
		get        func() (any, error)
	}{
		{"version.json", "versions of the manager and of what it uses", func() (any, error) { return m.Version(ctx) }},
		{"health.json", "whether the manager can do its work", func() (any, error) { return m.Health(ctx) }},
		{
			"config.json",
			"the configuration in force, and where each value comes from",
			func() (any, error) { return config(m.Config(ctx)) },
		},
		{"metrics.txt", "counters of the manager", func() (any, error) { return m.Metrics(ctx) }},
		{"instances.json", "the managers that are alive", func() (any, error) { return m.Instances(ctx) }},
		{"groups.json", "the host groups", func() (any, error) { return m.Groups(ctx) }},
		{
			"vars.json",
			"the names of the variables that are set, without their values",
			func() (any, error) { return b.varNames(ctx) },
		},
	}
	for _, s := range steps {
		v, err := s.get()
		if err := b.take(s.name, s.what, v, err); err != nil {
			return err
		}
	}

	nodes, err := m.Nodes(ctx, client.NodeFilter{})
	if err := b.take("nodes.json", "all nodes", nodes, err); err != nil {
		return err
	}

	if err := b.troubled(ctx, nodes.Items); err != nil {
		return err
	}

	jobs, err := m.Jobs(ctx, client.JobFilter{})
	if err := b.take("jobs.json", "all jobs that are kept", jobs, err); err != nil {
		return err
	}

	if err := b.failed(ctx, jobs.Items); err != nil {
		return err
	}

	if b.Bool("journal") {
		text, err := journal(ctx)
		if err := b.take("journal.txt", "the end of the journal of clusterm on this host", text, err); err != nil {
			return err
		}
	}

	if len(b.inside) == 1 && b.gone != nil {
		return b.gone // nothing but who asked
	}

	return b.readme()
}

// take adds what a step has collected, or says why it is left out. Its error
// is that the archive cannot be written, or that nobody wants it any more.
func (b *bundle) take(name, what string, v any, err error) error {
	if err != nil {
		if inventory.KindOf(err) == inventory.KindUnavailable && b.gone == nil {
			b.gone = err
		}

		message, _ := explain(err)
		b.out = append(b.out, name+": "+oneLine(message))

		if errors.Is(err, context.Canceled) {
			return err
		}

		return nil
	}

	if text, ok := v.(string); ok {
		return b.add(name, what, []byte(hideText(text)))
	}

	return b.json(name, what, v)
}

func (b *bundle) json(name, what string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}

	doc, err := hideJSON(raw, "  ")
	if err != nil {
		return err
	}

	return b.add(name, what, doc)
}

func (b *bundle) add(name, what string, data []byte) error {
	if b.size+int64(len(data)) > bundleBytes {
		b.out = append(b.out, fmt.Sprintf("%s: the bundle would be larger than %d MiB", name, bundleBytes>>20))
		return nil
	}

	b.size += int64(len(data))
	b.inside = append(b.inside, fmt.Sprintf("%-32s %s", name, what))
	b.say("%-32s %s", name, inventory.Count(len(data), "byte", "bytes"))

	err := b.tar.WriteHeader(
		&tar.Header{
			Name:     "clusterm-support/" + name,
			Mode:     0o600,
			Size:     int64(len(data)),
			ModTime:  b.now,
			Typeflag: tar.TypeReg,
		},
	)
	if err == nil {
		_, err = b.tar.Write(data)
	}

	if err != nil {
		return failf(ExitFailed, "the bundle cannot be written: %v", err)
	}

	return nil
}

func (b *bundle) readme() error {
	var text strings.Builder
	fmt.Fprintf(
		&text,
		"A support bundle of clusterm, made by clusterctl support-bundle on %s.\n\nInside:\n",
		b.now.UTC().Format(time.RFC3339),
	)

	for _, line := range b.inside {
		fmt.Fprintf(&text, "  %s\n", line)
	}

	text.WriteString(
		"\nLeft out, always:\n  the values of variables; variables of requests; what looks like a password, a token or a private key (see below)\n",
	)
	fmt.Fprintf(
		&text,
		"  all but the last %d KiB of each log; output of jobs other than the newest %d that failed or run;\n"+
			"  history of nodes that nothing is wrong with, or more than %d\n",
		bundleLog>>10,
		bundleJobs,
		bundleNodes,
	)

	if len(b.out) > 0 {
		text.WriteString("\nLeft out this time:\n")

		for _, line := range b.out {
			fmt.Fprintf(&text, "  %s\n", line)
		}
	}

	text.WriteString("\n" + recognised)

	return b.add("README.txt", "what is inside", []byte(text.String()))
}

// troubled adds what happened to the nodes that something is wrong with.
func (b *bundle) troubled(ctx context.Context, nodes []api.Node) error {
	n := 0
	for _, node := range nodes {
		if node.Status != inventory.Quarantined && node.LastError == "" && node.State == inventory.Discovered &&
			len(node.Residue) == 0 &&
			len(node.Duplicates) == 0 {
			continue
		}

		if n++; n > bundleNodes {
			b.out = append(b.out, fmt.Sprintf("nodes/: something is wrong with more than %d nodes", bundleNodes))
			return nil
		}

		history, err := b.manager.History(ctx, node.Name, bundleSteps)
		if err := b.take("nodes/"+node.Name+".history.json", "what happened to a node", history, err); err != nil {
			return err
		}

		explanation, err := b.manager.Explain(ctx, node.Name)
		if err := b.take("nodes/"+node.Name+".explanation.json", "why it is as it is", explanation, err); err != nil {
			return err
		}
	}

	return nil
}

// failed adds everything about the newest jobs that failed or run.
func (b *bundle) failed(ctx context.Context, jobs []api.Job) error {
	n := 0
	for _, j := range slices.Backward(jobs) {
		if j.Status == api.Complete || j.Status == api.Queued {
			continue
		}

		if n++; n > bundleJobs {
			b.out = append(b.out, fmt.Sprintf("jobs/: more than %d jobs failed or run", bundleJobs))
			return nil
		}

		whole, err := b.manager.Job(ctx, j.ID)

		whole.Vars = nil
		if err := b.take("jobs/"+j.ID+".json", "a job that failed or runs", whole, err); err != nil {
			return err
		}

		text, err := b.log(ctx, j.ID, whole.LogBytes)
		if err := b.take("jobs/"+j.ID+".log", "the end of its output", text, err); err != nil {
			return err
		}

		events, err := b.events(ctx, j.ID)
		if err := b.take("jobs/"+j.ID+".events.json", "the last of what happened in it", events, err); err != nil {
			return err
		}
	}

	return nil
}

func (b *bundle) log(ctx context.Context, id string, size int64) (string, error) {
	log, err := b.manager.Log(ctx, id, max(0, size-bundleLog), false)
	if err != nil {
		return "", err
	}

	defer func() { _ = log.Close() }()
	text, err := io.ReadAll(io.LimitReader(log, bundleLog))

	return string(text), err
}

// events are the last events of a job, as far as they fit.
func (b *bundle) events(ctx context.Context, id string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	size := 0
	err := b.manager.Events(ctx, id, 0, false, func(e api.Event) error {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}

		all, size = append(all, raw), size+len(raw)
		for size > bundleLog {
			size -= len(all[0])
			all = all[1:]
		}

		return nil
	})

	return all, err
}

// varNames are the names of the variables of every node and of each group.
func (b *bundle) varNames(ctx context.Context) (map[string][]string, error) {
	names := map[string][]string{}

	add := func(at string, s client.Scope) error {
		vars, err := b.manager.Vars(ctx, s)
		names[at] = sortedKeys(vars)

		return err
	}
	if err := add("global", client.ScopeGlobal); err != nil {
		return nil, err
	}

	groups, err := b.manager.Groups(ctx)
	if err != nil {
		return nil, err
	}

	for _, g := range groups.Items {
		if err := add("group "+g.Name, client.ScopeGroup(g.Name)); err != nil {
			return nil, err
		}
	}

	return names, nil
}

func sortedKeys(vars api.Vars) []string {
	names := make([]string, 0, len(vars))
	for k := range vars {
		names = append(names, k)
	}

	slices.Sort(names)

	return names
}

// config is the configuration with the names of its variables in place of the
// variables, and without secrets, should the manager show any.
func config(c api.Config, err error) (api.Config, error) {
	for key, s := range c {
		if key != "vars" && !strings.HasPrefix(key, "vars.") && (key == "secret_vars" || !secretName.MatchString(key)) {
			continue
		}

		if vars, ok := s.Value.(map[string]any); ok && key == "vars" {
			s.Value = sortedKeys(vars)
		} else {
			s.Value = removed
		}

		c[key] = s
	}

	return c, err
}

// journal is the end of the journal of clusterm on this host.
func journal(ctx context.Context) (string, error) {
	path, err := exec.LookPath("journalctl")
	if err != nil {
		return "", errors.New("there is no journalctl on this host")
	}

	ctx, cancel := context.WithTimeout(ctx, journalTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--unit=clusterm", "--lines=5000", "--no-pager", "--output=short-iso")
	cmd.WaitDelay = time.Second

	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("journalctl: %w", err)
	}

	return string(out[max(0, len(out)-4*bundleLog):]), nil
}

const removed = "[removed]"

// What is taken for a secret: names, values, and what joins them. A value may be
// quoted, also with quotes that are escaped because the text is quoted itself.
const (
	secretWord  = `(?:passw(?:or)?d|passphrase|secret|token|credential|api[_-]?key|private[_-]?key|access[_-]?key|encrypt[_-]?key)`
	secretWords = `[\w.-]*` + secretWord + `[\w.-]*`
	quoted      = `"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\\+"[^"\n]*"|\\+'[^'\n]*'`
	blank       = `(?:[ \t]|\\\n)+` // also over the end of a line that goes on
	userOption  = `(?:^|[\s"'])(?:-u|--user)(?:(?:` + blank + `)?|=|\\*["'],\s*)`
	userName    = `[^\s:"'=]*:`
)

var (
	secretName = regexp.MustCompile(`(?i)` + secretWord)
	// secretPair is NAME=VALUE, NAME: VALUE or "NAME": "VALUE" in text; the value
	// may be a list or an object.
	secretPair = regexp.MustCompile(
		`(?i)(` + secretWords + `\\*["']?\s*[:=]\s*)(` + quoted + `|\[[^\]\n]*\]?|\{[^}\n]*\}?|[^\s,;"'})\]]+)`,
	)
	// secretOption is --NAME VALUE, also as two items of a list. What begins with
	// a dash is the next option.
	secretOption = regexp.MustCompile(
		`(?i)((?:^|[\s"'\[(])--?` + secretWords + `(?:` + blank + `|\\*["'],\s*))(` + quoted + `|[^\s"',;)\]}-][^\s"']*)`,
	)
	// quotedOption is "--NAME=VALUE", quoted as a whole; itemOption is the same as
	// an item of a list.
	quotedOption = inQuotes("", `(?:--?`+secretWords+`=|(?:-u|--user=)`+userName+`)`)
	itemOption   = regexp.MustCompile(`(?is)^(--?` + secretWords + `=|(?:-u|--user=)` + userName + `).+`)
	optionName   = regexp.MustCompile(`(?i)^--?` + secretWords + `$`)
	// secretWordValue is NAME VALUE, where the value has a digit in it: it is seldom
	// a word of a sentence then.
	secretWordValue = regexp.MustCompile(`(?i)(\b` + secretWord + blank + `)([^\s"',;)\]}]*\d[^\s"',;)\]}]*)`)
	// The options of well-known programs that say no such word.
	sshpass  = regexp.MustCompile(`(\bsshpass` + blank + `-p` + `[ \t]*)(` + quoted + `|[^\s"']+)`)
	userPair = regexp.MustCompile(`(` + userOption + userName + `)(` + quoted + `|[^\s"']+)`)
	// quotedPair is that with the whole pair in quotes; userItem is its option as
	// an item of a list.
	quotedPair = inQuotes(userOption, `[^:"'\n]*:`)
	userItem   = regexp.MustCompile(`^(?:-u|--user)$`)
	// bearer is the credential of an HTTP header, userinfo that of a URL.
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	userinfo   = regexp.MustCompile(`://[^/\s:@"']*:[^/\s"']+@`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// keyEnd is the end of a key that began before the text does.
	keyEnd = regexp.MustCompile(`(?s)^.*-----END [A-Z ]*PRIVATE KEY-----`)
)

// inQuotes matches before, a quote, inside, and what is to go: all up to the quote
// that closes. The quotes may be escaped.
func inQuotes(before, inside string) *regexp.Regexp {
	var forms []string
	for _, q := range []string{`"`, `'`} {
		forms = append(forms,
			`(`+before+q+inside+`)(?:[^\\\n`+q+`]|\\.)+`,
			`(`+before+`\\+`+q+inside+`)[^\n`+q+`]*[^\\\n`+q+`]`)
	}

	return regexp.MustCompile(`(?i)` + strings.Join(forms, "|"))
}

// recognised is what the README of a bundle says of hideText.
const recognised = `What looks like a password, a token or a private key is replaced by ` + removed + `, in texts and in values:
  after a name with passwd, password, passphrase, secret, token, credential or api, private, access or encrypt key in it:
    NAME=VALUE, NAME: VALUE, --NAME VALUE, --NAME=VALUE, "--NAME", "VALUE"; NAME VALUE where the value has a digit in it
  credentials after Bearer and Basic; USER:PASSWORD@ in a URL; curl -u USER:PASSWORD; sshpass -p PASSWORD; PEM private keys
Not recognised is, among others:
  the rest of a value without quotes after a blank, a quote, a comma, a semicolon or a closing bracket; a password with
    a / or a quote in a URL
  a secret that no such name precedes; one of letters only after a name and a blank (password swordfish); one that begins
  with a dash after an option; other short options (mysql -pSECRET); what is encoded (base64) or broken over lines
So look through the files before you send them.
`

// hideText takes out of text what looks like a secret; recognised says what does.
func hideText(s string) string {
	s = privateKey.ReplaceAllString(s, removed)

	s = keyEnd.ReplaceAllString(s, removed)
	for _, e := range []*regexp.Regexp{quotedOption, quotedPair} {
		s = e.ReplaceAllString(s, "${1}${2}${3}${4}"+removed) // one of the four forms
	}

	for _, e := range []*regexp.Regexp{secretPair, secretOption, secretWordValue, sshpass, userPair} {
		s = e.ReplaceAllString(s, "${1}"+removed)
	}

	s = bearer.ReplaceAllString(s, "${1} "+removed)

	return userinfo.ReplaceAllString(s, "://"+removed+"@")
}

// hideJSON takes what looks like a secret out of a JSON document.
func hideJSON(raw []byte, indent string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()

	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}

	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	err := e.Encode(hide(v))

	return b.Bytes(), err
}

// itemBefore is the text before an item of a list.
func itemBefore(list []any, i int) (string, bool) {
	if i == 0 {
		return "", false
	}

	text, ok := list[i-1].(string)

	return text, ok
}

func hide(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, value := range v {
			switch value.(type) {
			case string, json.Number:
				if secretName.MatchString(k) {
					v[k] = removed
					continue
				}
			}

			v[k] = hide(value)
		}
	case []any:
		for i := range v {
			// A command line as a list: the value is the item after the option.
			text, isText := v[i].(string)
			name, _ := itemBefore(v, i)

			user, _, isPair := strings.Cut(text, ":")
			switch {
			case isText && optionName.MatchString(name) && !strings.HasPrefix(text, "-"):
				v[i] = removed
			case isPair && userItem.MatchString(name):
				v[i] = user + ":" + removed
			case itemOption.MatchString(text):
				v[i] = itemOption.ReplaceAllString(text, "${1}"+removed)
			default:
				v[i] = hide(v[i])
			}
		}
	case string:
		return hideText(v)
	}

	return v
}

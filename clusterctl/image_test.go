// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/management/api"
)

// web serves a file with an ETag. It breaks off after the first bytes, once.
type web struct {
	content []byte
	tag     string
	breakAt int
	asked   []string // the ranges
}

func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked = append(s.asked, r.Header.Get("Range"))
	w.Header().Set("ETag", s.tag)

	if at := s.breakAt; at > 0 {
		s.breakAt = 0
		_, _ = w.Write(s.content[:at])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}

	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.content))
}

// TestFetchImage: what was fetched before is not fetched again, unless it has changed.
func TestFetchImage(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())

	content := bytes.Repeat([]byte("image "), 100_000)
	s := &web{content: content, tag: `"1"`, breakAt: 4096}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)

	c := quiet()

	fetch := func() (string, error) {
		lock, err := c.fetchImage(t.Context(), server.URL+"/debian.raw")
		if err != nil {
			return "", err
		}
		defer func() { errtest.None(t, lock.Unlock()) }()

		// Another command waits for the end of this one.
		if _, err := c.fetchImage(t.Context(), server.URL+"/debian.raw"); !strings.Contains(fmt.Sprint(err), "in use") {
			t.Errorf("two commands have one copy: %v", err)
		}

		got, err := os.ReadFile(lock.File().Name())
		errtest.None(t, err)

		return string(got), nil
	}

	if _, err := fetch(); err == nil {
		t.Fatal("half a file is a file")
	}

	for _, want := range []string{"bytes=4096-", "bytes=600000-"} {
		got, err := fetch()
		if err != nil || got != string(content) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}

		if last := s.asked[len(s.asked)-1]; last != want {
			t.Errorf("asked for %q, want %q", last, want)
		}
	}

	s.content, s.tag = []byte("another one"), `"2"`

	if got, err := fetch(); err != nil || got != "another one" {
		t.Errorf("after a change: %d bytes, %v", len(got), err)
	}
}

func quiet() *call {
	return &call{app: &app{Options: Options{Stderr: &bytes.Buffer{}}}, Command: &cli.Command{}}
}

// TestFetchRedirect: encrypted content stays so on its way, and no message has the secrets of a URL.
func TestFetchRedirect(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())

	plain := httptest.NewServer(&web{content: []byte("changed on the way")})
	t.Cleanup(plain.Close)

	referer := ""
	mux := http.NewServeMux()
	mux.Handle("/plain", http.RedirectHandler(plain.URL+"/image?token=s3cret", http.StatusFound))
	mux.Handle("/moved", http.RedirectHandler("/image", http.StatusFound))
	mux.HandleFunc("/image", func(_ http.ResponseWriter, r *http.Request) { referer = r.Header.Get("Referer") })

	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)

	was := http.DefaultTransport
	http.DefaultTransport = server.Client().Transport

	t.Cleanup(func() { http.DefaultTransport = was })

	host := strings.TrimPrefix(server.URL, "https://")
	from := func(path string) string { return "https://ann:s3cret@" + host + path + "?token=s3cret" }

	for _, path := range []string{"/plain", "/missing", "/%zz"} {
		lock, err := quiet().fetchImage(t.Context(), from(path))
		if err == nil {
			t.Errorf("%s: %s has it", path, lock.File().Name())
			continue
		}
		if message, remedy := exit.Explain("", err); strings.Contains(message+remedy, "s3cret") {
			t.Errorf("%s: %s\n%s", path, message, remedy)
		}
	}

	lock, err := quiet().fetchImage(t.Context(), from("/moved"))
	errtest.None(t, err)
	errtest.None(t, lock.Unlock())

	if referer != "" {
		t.Errorf("the next server learns of %s", referer)
	}
}

// TestFetchInterrupted: Ctrl-C while content comes is no failure.
func TestFetchInterrupted(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())

	ctx, cancel := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()

		cancel(exit.ErrInterrupted)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)

	if _, err := quiet().fetchImage(ctx, server.URL); exit.Code(err) != exit.Interrupted {
		t.Errorf("%d: %v", exit.Code(err), err)
	}
}

// TestCopies: what was fetched and is no image is removed, as is what nobody came back for, unless a command has it.
func TestCopies(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)

	server := httptest.NewServer(&web{content: []byte("404, but with another status"), tag: `"1"`})
	t.Cleanup(server.Close)

	dir := filepath.Join(cache, "clusterctl", "images")
	errtest.None(t, os.MkdirAll(dir, 0o700))

	for name, age := range map[string]time.Duration{
		"old": 8 * 24 * time.Hour, "old.etag": 8 * 24 * time.Hour, "used": 8 * 24 * time.Hour, "new": time.Hour,
	} {
		path := filepath.Join(dir, name)
		errtest.None(t, os.WriteFile(path, nil, 0o600))
		errtest.None(t, os.Chtimes(path, time.Time{}, time.Now().Add(-age)))
	}

	used, err := lockCopy(filepath.Join(dir, "used"))
	errtest.None(t, err)

	if _, err := quiet().imageSource(t.Context(), server.URL); exit.Code(err) != exit.Usage {
		t.Errorf("no image: %v", err)
	}

	left, err := filepath.Glob(filepath.Join(dir, "*"))
	errtest.None(t, err)

	for n, path := range left {
		left[n] = filepath.Base(path)
	}
	if got := strings.Join(left, " "); got != "new used" {
		t.Errorf("left: %s", got)
	}

	errtest.None(t, used.Unlock())
}

// oneImage is an instance that has lost its copy of an image, of which another instance has one.
type oneImage struct {
	t     *testing.T
	image api.Image
	sent  int
}

// ServeHTTP implements http.Handler.
func (m *oneImage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any = m.image

	switch {
	case r.Method == http.MethodPut:
		n, err := io.Copy(io.Discard, r.Body)
		errtest.None(m.t, err)

		m.sent++
		m.image.Files[0].Received += n
		answer = m.image
	case strings.HasSuffix(r.URL.Path, "/verify"):
		answer = api.ImageCheck{
			Image: "debian", Node: "host-a", Files: []api.ImageFileCheck{{Role: "image", Result: api.ImageMissing}},
		}
	case r.Method == http.MethodPost:
		var asked api.ImageRequest
		errtest.None(m.t, json.NewDecoder(r.Body).Decode(&asked))

		m.image.Files[0].Digest, m.image.Files[0].Size = asked.Files[0].Digest, asked.Files[0].Size
		answer = m.image
	}

	w.Header().Set("Content-Type", "application/json")
	errtest.None(m.t, json.NewEncoder(w).Encode(answer))
}

// TestAddRepairs: content comes to the instance that answers, although another one has it; once. A check tells the
// command for that.
func TestAddRepairs(t *testing.T) {
	t.Parallel()

	m := &oneImage{t: t, image: api.Image{
		Name: "debian", Kind: api.ImageDisk, Arch: "arm64", Boot: "uefi", State: api.ImageComplete,
		Files: []api.ImageFile{{Role: "image", Instances: []api.ImagePlace{{ID: "b", Node: "host-b"}}}},
	}}

	manager := httptest.NewServer(m)
	t.Cleanup(manager.Close)

	disk := make([]byte, 4096)
	disk[510], disk[511] = 0x55, 0xaa
	path := filepath.Join(t.TempDir(), "disk.raw")
	errtest.None(t, os.WriteFile(path, disk, 0o600))

	run := func(args ...string) (int, string) {
		var out, problem bytes.Buffer

		code := Run(t.Context(), append([]string{"clusterctl", "-u", manager.URL, "image"}, args...),
			Options{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &problem})

		return code, problem.String()
	}

	if code, said := run("verify", "debian"); code != exit.Failed ||
		!strings.Contains(said, "image add debian FILE --arch arm64 --boot uefi") {
		t.Errorf("%d: %s", code, said)
	}

	for range 2 {
		if code, said := run("add", "debian", path, "--arch", "arm64", "--boot", "uefi"); code != exit.Done {
			t.Errorf("%d: %s", code, said)
		}
	}

	if f := m.image.Files[0]; m.sent != 1 || f.Received != 4096 {
		t.Errorf("sent %d times, %d bytes", m.sent, f.Received)
	}
}

// TestProgress: a log of a command gets ten lines for a large file, and none for a small one.
func TestProgress(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		all, comes int64
		want       int
	}{{20 << 30, 20 << 30, 10}, {200 << 20, 200 << 20, 3}, {1 << 20, 1 << 20, 0}, {0, 5 << 30, 5}} {
		var said bytes.Buffer

		p := (&call{app: &app{Options: Options{Stderr: &said}}}).progress("sending", 0, c.all)
		for range c.comes >> 20 {
			p.add(1 << 20)
		}
		p.end()

		if got := strings.Count(said.String(), "\n"); got != c.want {
			t.Errorf("%d MiB: %d lines, want %d", c.comes>>20, got, c.want)
		}
	}
}

// TestInstallerFiles finds the files of an installer by name and by options, and nothing that is ambiguous.
func TestInstallerFiles(t *testing.T) {
	t.Parallel()

	for _, row := range []struct{ names, options, want string }{
		{"linux initrd.gz preseed.cfg README", "", "kernel=linux initrd=initrd.gz preseed=preseed.cfg"},
		{"vmlinuz-6.1 initramfs.img site.ks", "", "kernel=vmlinuz-6.1 initrd=initramfs.img kickstart=site.ks"},
		{"vmlinuz initrd user-data", "", "kernel=vmlinuz initrd=initrd autoinstall=user-data"},
		{"a b c", "kernel=a initrd=b template=preseed=c", "preseed=c kernel=a initrd=b"},
		{"vmlinuz-1 vmlinuz-2 initrd site.ks", "", ""},
		{"vmlinuz-1 vmlinuz-2 initrd site.ks", "kernel=vmlinuz-2", "kernel=vmlinuz-2 initrd=initrd kickstart=site.ks"},
		{"vmlinuz initrd", "", ""},
		{"vmlinuz initrd x", "template=other=x", ""},
		{"", "", ""},
	} {
		folder := t.TempDir()
		for name := range strings.FieldsSeq(row.names) {
			errtest.None(t, os.WriteFile(filepath.Join(folder, name), []byte(name), 0o600))
		}

		c := &call{app: &app{}, Command: &cli.Command{Flags: []cli.Flag{
			valueFlag("kernel", ""), valueFlag("initrd", ""), valueFlag("template", ""),
		}, Action: func(context.Context, *cli.Command) error { return nil }}}

		args := []string{"add"}
		for option := range strings.FieldsSeq(row.options) {
			args = append(args, "--"+option)
		}
		errtest.None(t, c.Run(t.Context(), args))

		found, err := c.installerFiles(folder)

		var got []string
		for _, f := range found {
			got = append(got, f.role+"="+filepath.Base(f.path))
		}

		if strings.Join(got, " ") != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%q with %q: %q, %v", row.names, row.options, got, err)
		}
	}
}

// TestParseSize: sizes have units of 1024, and nothing overflows.
func TestParseSize(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]int64{
		"": 0, "512": 512, "20G": 20 << 30, "20GiB": 20 << 30, "1T": 1 << 40, "3K": 3072, "2M": 2 << 20,
		"0": -1, "-1": -1, "G": -1, "9999999999999T": -1, "20 G": -1, "1.5G": -1, "20X": -1,
	} {
		got, err := parseSize(text)
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
}

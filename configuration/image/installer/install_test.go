// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/errtest"
	"github.com/contiv/cluster/inventory/facts"
)

const diskSize = 80 << 20

var foundDisks = facts.Facts{Schema: facts.Schema, Disks: []facts.Disk{
	{Name: "vda", SizeBytes: 80 << 30, Serial: "S1"}, {Name: "vdb", SizeBytes: 8 << 30, Serial: "S2"},
}}

// fakeInstallation installs on a file, from a server that answers each request by the next handler.
type fakeInstallation struct {
	*installation

	manager *fakeManager
	disk    *os.File
	opened  []string
	image   []byte // compressed
	plain   []byte
	fetched atomic.Int32
}

func newFakeInstallation(t *testing.T, m *fakeManager, serve ...http.HandlerFunc) *fakeInstallation {
	t.Helper()

	f := &fakeInstallation{manager: m, plain: bytes.Repeat([]byte("image..."), 3<<20/8)}
	f.plain[446+4], f.plain[446+8], f.plain[446+13], f.plain[510], f.plain[511] = 0x83, 9, 8, 0x55, 0xaa
	clear(f.plain[446+16 : 510])
	clear(f.plain[446+9 : 446+12])
	clear(f.plain[446+14 : 446+16])
	f.plain[446] = 0x80

	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.NoCompression)
	errtest.None(t, err)
	_, err = w.Write(f.plain)
	errtest.None(t, err)
	errtest.None(t, w.Close())
	f.image = packed.Bytes()

	f.disk, err = os.Create(filepath.Join(t.TempDir(), "disk"))
	errtest.None(t, err)
	errtest.None(t, f.disk.Truncate(diskSize))
	_, err = f.disk.WriteAt([]byte("old system"), 0)
	errtest.None(t, err)

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+testToken || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("%s with %v", r.URL, r.Header)
		}
		if n := int(f.fetched.Add(1)); n <= len(serve) && serve[n-1] != nil {
			serve[n-1](w, r)
			return
		}
		_, _ = w.Write(f.image)
	}))
	t.Cleanup(server.Close)

	f.installation = newInstallation(Install{
		Image: Image{
			URL: server.URL + "/image", Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(f.image)),
			Size: int64(len(f.image)), Compression: "gzip",
		},
		RootDevice: map[string]any{"serial": "S2"}, Seed: Seed{MetaData: "instance-id: r1"},
	}, m.reporter, []string{"no module"})
	f.delays, f.every = &backoff.ZeroBackOff{}, time.Hour
	f.open = func(d facts.Disk) (diskFile, int64, error) {
		f.opened = append(f.opened, d.Name)
		disk, err := os.OpenFile(f.disk.Name(), os.O_RDWR, 0)
		return disk, diskSize, err
	}

	return f
}

// begins returns the first bytes of the disk.
func (f *fakeInstallation) begins(t *testing.T, n int) []byte {
	t.Helper()

	b := make([]byte, n)
	_, err := f.disk.ReadAt(b, 0)
	errtest.None(t, err)

	return b
}

// TestInstall reports each step, and installs the image on the disk of the hints.
func TestInstall(t *testing.T) {
	t.Parallel()

	m := serve(t, then(report.Continue), then(report.Restart))
	f := newFakeInstallation(t, m)

	got, err := f.run(foundDisks)
	if err != nil || got != report.Restart || m.stages() != "writing installed" || fmt.Sprint(f.opened) != "[vdb]" {
		t.Fatalf("%q after %q (%v)", got, m.stages(), err)
	}
	for _, r := range m.received {
		if r.Disk != "vdb of 8.6 GB (serial S2)" || r.Total != f.Image.Size || len(r.Problems) != 1 {
			t.Errorf("%+v", r)
		}
	}
	if w := m.received[1].Written; w != f.Image.Size {
		t.Errorf("%d bytes are written", w)
	}
	if !bytes.Equal(f.begins(t, 462), f.plain[:462]) || !bytes.Equal(f.begins(t, len(f.plain))[512:], f.plain[512:]) {
		t.Error("the disk is not the image")
	}
	if text := m.console.String(); !strings.Contains(text, "The image is on the disk vdb") ||
		strings.Contains(text, testToken) {
		t.Errorf("the console:\n%s", text)
	}
}

// TestInstallFails reports why, and whether a disk was touched.
func TestInstallFails(t *testing.T) {
	t.Parallel()

	other := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 100)) }
	broken := func(f *fakeInstallation) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(f.image)))
			_, _ = w.Write(f.image[:2<<20])
		}
	}
	untouched := "No disk was touched."

	for name, c := range map[string]struct {
		serve   func(*fakeInstallation) http.HandlerFunc
		edit    func(*fakeInstallation)
		fetched int32
		text    []string
	}{
		"no disk": {
			nil, func(f *fakeInstallation) { f.RootDevice = map[string]any{"serial": "S3"} }, 0,
			[]string{"no disk fits the hint serial=S3: it has vda", untouched},
		},
		"in use": {nil, func(f *fakeInstallation) {
			f.open = func(facts.Disk) (diskFile, int64, error) { return nil, 0, errors.New("in use") }
		}, 0, []string{"in use. " + untouched}},
		"too large": {
			nil, func(f *fakeInstallation) { f.Image.Virtual = diskSize + 1 }, 1, []string{"larger disk", untouched},
		},
		"not found": {
			func(*fakeInstallation) http.HandlerFunc { return fails(http.StatusNotFound) }, nil, 1,
			[]string{"the manager answered 404", untouched},
		},
		"unavailable": {
			func(*fakeInstallation) http.HandlerFunc { return fails(http.StatusServiceUnavailable) }, nil, 3,
			[]string{"the manager answered 503", untouched},
		},
		"redirect": {
			func(*fakeInstallation) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }
			}, nil, 3, []string{"the manager answered 302", untouched},
		},
		"lost": {
			func(*fakeInstallation) http.HandlerFunc { return lost }, nil, 3, []string{"cannot fetch", untouched},
		},
		"other": {
			func(*fakeInstallation) http.HandlerFunc { return other }, nil, 2, []string{"has 100 bytes", untouched},
		},
		"breaks off": {
			broken, nil, 3, []string{"failed after 2097152 of", "Nothing on the disk vdb of", "boots any more."},
		},
		"another digest": {nil, func(f *fakeInstallation) {
			f.Image.Digest = "sha256:" + strings.Repeat("0", 64)
		}, 2, []string{"it has the digest sha256:", "boots any more."}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			m := serve(t, then(report.Continue), then(report.Wait))
			if name == "no disk" || name == "in use" {
				m = serve(t, then(report.Wait))
			}

			var serves []http.HandlerFunc
			var f *fakeInstallation
			if c.serve != nil {
				for range 3 {
					serves = append(serves, func(w http.ResponseWriter, r *http.Request) { c.serve(f)(w, r) })
				}
			}
			f = newFakeInstallation(t, m, serves...)
			if c.edit != nil {
				c.edit(f)
			}

			got, err := f.run(foundDisks)
			if err != nil || got != report.Wait || f.fetched.Load() != c.fetched {
				t.Errorf("%q after %q and %d fetches (%v)", got, m.stages(), f.fetched.Load(), err)
			}

			last := m.received[len(m.received)-1]
			for _, text := range c.text {
				if last.Stage != report.Failed || !strings.Contains(last.Message, text) {
					t.Errorf("%+v", last)
				}
			}
			touched := !strings.Contains(last.Message, untouched)
			if has := string(
				f.begins(t, 10),
			); has == "old system" == touched ||
				touched && strings.Trim(has, "\x00") != "" {
				t.Errorf("the disk begins with %q", has)
			}
		})
	}
}

// TestInstallAgain succeeds after failures of the network, and other content once.
func TestInstallAgain(t *testing.T) {
	t.Parallel()

	m := serve(t, then(report.Continue), then(report.Off))
	var f *fakeInstallation
	f = newFakeInstallation(t, m, lost, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(append(bytes.Clone(f.image[:2<<20]), make([]byte, len(f.image)-2<<20)...))
	})

	got, err := f.run(foundDisks)
	if err != nil || got != report.Off || m.stages() != "writing installed" || f.fetched.Load() != 3 {
		t.Errorf("%q after %q and %d fetches (%v)\n%s", got, m.stages(), f.fetched.Load(), err, m.console.String())
	}
}

// TestInstallObeys touches no disk without an answer that says so.
func TestInstallObeys(t *testing.T) {
	t.Parallel()

	for name, answer := range map[string]http.HandlerFunc{
		"wait": then(report.Wait), "off": then(report.Off), "": fails(http.StatusGone),
	} {
		m := serve(t, answer)
		f := newFakeInstallation(t, m)

		got, err := f.run(foundDisks)
		if got != name || (err != nil) != (name == "") || f.fetched.Load() != 0 || string(f.begins(t, 3)) != "old" {
			t.Errorf("%q: %q (%v)", name, got, err)
		}
	}

	// Nor does the answer to the facts.
	for _, answer := range []string{report.Wait, report.Off, report.Restart, ""} {
		if got, err := install(
			&Install{},
			newReporter(Report{}, nil),
			nil,
			facts.Facts{},
			answer,
		); got != answer ||
			err != nil {
			t.Errorf("%q: %q (%v)", answer, got, err)
		}
	}
	if got, err := install(nil, nil, nil, facts.Facts{}, report.Continue); got != report.Continue || err != nil {
		t.Errorf("%q (%v)", got, err)
	}
}

// TestInstallProgress reports what is written, each message once, and ends if the manager says so.
func TestInstallProgress(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		answer http.HandlerFunc
		ends   bool
	}{
		{then(report.Continue), false},
		{then(report.Off), false},
		{lost, false},
		{fails(http.StatusInternalServerError), false},
		{fails(http.StatusGone), true},
	} {
		var f *fakeInstallation
		told := make(chan struct{}, 2)
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if string(f.begins(t, 3)) == "old" {
				then(report.Continue)(w, r) // the writing has not begun
				return
			}
			select {
			case told <- struct{}{}:
			default:
			}
			c.answer(w, r)
		})

		f = newFakeInstallation(t, m, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(f.image)))
			_, _ = w.Write(f.image[:2<<20])
			_ = http.NewResponseController(w).Flush()
			<-told
			if !c.ends {
				<-told
			} else {
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Second): // too long
				}
			}
			_, _ = w.Write(f.image[2<<20:])
		})
		f.every = 10 * time.Millisecond

		to, size, err := f.open(foundDisks.Disks[1])
		errtest.None(t, err)
		touched, err := f.write(report.Message{Stage: report.Writing, Total: f.Image.Size}, to, size)

		boots := strings.Trim(string(f.begins(t, 512)), "\x00") != ""
		switch {
		case !touched:
			t.Errorf("untouched: %v", err)
		case c.ends && (inventory.KindOf(err) != inventory.KindRefused || boots):
			t.Errorf("the disk boots: %v", err)
		case !c.ends && (err != nil || f.fetched.Load() != 1):
			t.Errorf("%d fetches: %v", f.fetched.Load(), err)
		}
	}
}

// TestInstallStalls ends a try of which nothing comes, and not one whose disk is slow.
func TestInstallStalls(t *testing.T) {
	t.Parallel()

	stalls := func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 1000))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	silent := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

	for _, serves := range []http.HandlerFunc{stalls, silent} {
		m := serve(t, then(report.Continue), then(report.Wait))
		f := newFakeInstallation(t, m, serves, serves, serves)
		f.stall = 50 * time.Millisecond

		_, err := f.run(foundDisks)
		errtest.None(t, err)
		if got := m.received[len(m.received)-1]; got.Stage != report.Failed || f.fetched.Load() != 3 ||
			!strings.Contains(got.Message, "nothing of the image came for 50ms") {
			t.Errorf("after %d fetches: %+v", f.fetched.Load(), got)
		}
	}

	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()

		timer := time.AfterFunc(stallTime, cancel)
		body := &timed{strings.NewReader("abc"), timer, stallTime}
		for range 3 {
			_, err := body.Read(make([]byte, 1))
			errtest.None(t, err)
			<-time.After(2 * stallTime) // the disk is slow
		}
		if ctx.Err() != nil {
			t.Error("the time of the disk counts")
		}
	})
}

// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/job"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/record/recordtest"
)

// kernels has the files of one environment in a folder.
type kernels struct{ dir string }

func (k kernels) For(_ record.Reader, arch string) (string, error) {
	if arch != "amd64" {
		return "", errors.New("there is no kernel for " + arch)
	}
	return "k1", nil
}

func (kernels) Make(context.Context, string) error { return nil }

func (k kernels) Open(_ context.Context, image, file string) (*os.File, error) {
	return os.Open(filepath.Join(k.dir, image+"."+file))
}

// bootSite is a site that serves machines by HTTP.
type bootSite struct {
	*site

	url    string
	kernel []byte
	initrd []byte
}

func newBootSite(t *testing.T, machines int) *bootSite {
	t.Helper()

	b := &bootSite{site: newSite(t, machines, "10.9.1.100-10.9.1.199")}
	dir := t.TempDir()

	// Larger than one chunk.
	b.kernel, b.initrd = bytes.Repeat([]byte("kernel"), 1<<20), bytes.Repeat([]byte("initrd"), 1000)
	for name, content := range map[string][]byte{
		"k1.kernel": b.kernel, "k1.initrd": b.initrd, "snponly.efi": []byte("a program"), "k1.secret": []byte("no"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	b.Environments, b.config.IPXE = kernels{dir}, dir

	for i := range machines {
		b.write(func(tx *record.Tx) { record.Put(tx, &job.Nodes, &inventory.Node{Name: nodeOf(i)}) })
	}

	server := httptest.NewServer(web{b.Service, netip.MustParsePrefix("10.9.1.254/24")}.handler())
	t.Cleanup(server.Close)
	b.url = server.URL

	return b
}

// get returns the status and the body of a path or URL.
func (b *bootSite) get(at string) (int, string) {
	b.Helper()

	if !strings.HasPrefix(at, "http") {
		at = b.url + at
	}

	return b.do(http.MethodGet, at, "", nil)
}

func (b *bootSite) do(method, at, token string, body any) (int, string) {
	b.Helper()

	text, err := json.Marshal(body)
	if err != nil {
		b.Fatal(err)
	}

	r, err := http.NewRequestWithContext(b.Context(), method, at, bytes.NewReader(text))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)

	got, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer got.Body.Close()

	content, err := io.ReadAll(got.Body)
	if err != nil {
		b.Fatal(err)
	}

	return got.StatusCode, string(content)
}

func (b *bootSite) begin(node, job string) {
	b.Helper()

	off := func(context.Context) (string, error) { return Off, nil }
	if _, err := b.Begin(b.Context(), Order{Node: node, Job: job, Purpose: "inspect", Then: off}); err != nil {
		b.Fatal(err)
	}
}

// urls are those in the script of a machine: kernel, initrd, and the script once more.
func (b *bootSite) urls(mac string) []string {
	b.Helper()

	status, script := b.get("/boot/script?mac=" + mac)
	all := regexp.MustCompile(`http://\S+`).FindAllString(script, -1)

	if status != http.StatusOK || !strings.HasPrefix(script, "#!ipxe\n") || len(all) != 3 {
		b.Fatalf("the script (status %d) is %s", status, script)
	}

	return all
}

// order is that in the beginning of an initrd, and where it ends.
func (b *bootSite) order(initrd string) (o installer.Order) {
	b.Helper()

	head, found := strings.CutSuffix(initrd, string(b.initrd))
	at, end := strings.Index(head, "{"), strings.LastIndex(head, "}")
	if !found || at < 0 {
		b.Fatalf("the initrd does not end with that of the environment, or has no order: %.300q", head)
	}

	o, err := installer.Decode([]byte(head[at : end+1]))
	if err != nil {
		b.Fatal(err)
	}

	return o
}

func (b *bootSite) events(node string) (all []string) {
	b.Helper()

	if err := b.recordEvents(b.Context()); err != nil {
		b.Fatal(err)
	}

	r, _ := b.store.Latest()
	boots := NodeBoots(r, node).Boots
	for _, e := range boots[len(boots)-1].Events {
		all = append(all, fmt.Sprintf("%s: %s (%d)", e.From, e.Text, max(e.Count, 1)))
	}

	return all
}

// TestBoot boots a machine as iPXE and its environment do, and reads what it gets before, during and after that.
func TestBoot(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 2)
	script := "/boot/script?mac=" + macOf(0)

	if status, _ := b.get(script); status != http.StatusNotFound {
		t.Errorf("a machine that nobody asked to boot gets a script: %d", status)
	}

	b.begin("r01", "7")
	b.begin("r01", "7") // its job goes on

	for _, mac := range []string{macOf(1), "", "52:54:00:00:00:ff"} {
		if status, text := b.get("/boot/script?mac=" + mac); status != http.StatusNotFound {
			t.Errorf("%q gets %d: %s", mac, status, text)
		}
	}

	urls := b.urls(macOf(0))

	if status, got := b.get(urls[0]); status != http.StatusOK || got != string(b.kernel) {
		t.Errorf("the kernel came with %d and %d bytes", status, len(got))
	}

	_, initrd := b.get(urls[1])
	o := b.order(initrd)
	want := installer.Interface{
		MAC: macOf(0), Address: netip.MustParsePrefix("10.9.1.100/24"), DNS: b.config.DNS,
	}
	if fmt.Sprint(o.Interface) != fmt.Sprint(want) {
		t.Errorf("the machine configures %+v, want %+v", o.Interface, want)
	}

	// Nothing else is there, and nothing for others.
	token := o.Report.Token
	for _, path := range []string{
		"/boot/machine/r01/" + token + "/secret", "/boot/machine/r01/" + token + "/..%2Fk1.kernel",
		"/boot/machine/r02/" + token + "/kernel", "/boot/machine/r01/x" + token[1:] + "/kernel",
		"/boot/machine/r01//kernel", "/boot/files/snponly.efi", "/",
	} {
		if status, text := b.get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d %.50s", path, status, text)
		}
	}

	send := func(token string, m report.Message) (int, string) {
		status, text := b.do(http.MethodPost, o.Report.URL, token, m)

		var a report.Answer
		_ = json.Unmarshal([]byte(text), &a)

		return status, a.Then
	}
	found := report.Message{
		Stage: report.Facts, Problems: []string{"no\x1b[2J disk"},
		Facts: &facts.Facts{Schema: facts.Schema, Arch: "x86_64", System: facts.System{Serial: "S1"}},
	}

	if status, then := send(token, report.Message{Stage: report.Started}); status != 200 || then != report.Continue {
		t.Errorf("started: %d %s", status, then)
	}
	if status, _ := send("", found); status != http.StatusGone {
		t.Errorf("without the token: %d", status)
	}

	if _, err := b.Await(b.canceled(), "r01", "7", 100); !errors.Is(err, context.Canceled) {
		t.Errorf("facts without a report: %v", err)
	}

	for range 2 { // the answer was lost
		if status, then := send(token, found); status != 200 || then != report.Off {
			t.Errorf("the facts: %d %s", status, then)
		}
	}

	// The boot is spent, although its job has not ended it yet.
	for _, at := range []string{script, urls[0], urls[1]} {
		if status, _ := b.get(at); status != http.StatusNotFound {
			t.Errorf("after the report, %s is answered with %d", at, status)
		}
	}

	p, err := b.Await(t.Context(), "r01", "7", 100)
	if err != nil || p.Facts == nil || p.Facts.System.Serial != "S1" {
		t.Errorf("the facts are %+v (%v)", p.Facts, err)
	}

	events := b.events("r01")
	for _, want := range []string{
		"http: asked for its script, and got it (1)", "http: fetched the kernel (1)", "http: fetched the initrd (1)",
		"report: started (1)", "report: problem: no [2J disk (2)", "report: these are the facts of the machine (2)",
	} {
		if !slices.Contains(events, want) {
			t.Errorf("%q is not among %q", want, events)
		}
	}

	if err := b.End(t.Context(), "r01", "7", "done"); err != nil {
		t.Fatal(err)
	}

	for _, at := range []string{script, urls[0], urls[1]} {
		if status, _ := b.get(at); status != http.StatusNotFound {
			t.Errorf("after the end, %s is answered with %d", at, status)
		}
	}
	if status, then := send(token, found); status != 200 || then != report.Off {
		t.Errorf("a lost answer after the end: %d %s", status, then)
	}
	if status, _ := send(token, report.Message{Stage: report.Started}); status != http.StatusGone {
		t.Errorf("a new report after the end: %d", status)
	}
}

// canceled is a context that has ended.
func (b *bootSite) canceled() context.Context {
	ctx, cancel := context.WithCancel(b.Context())
	cancel()

	return ctx
}

// TestBootOfAnotherJob: a boot that an earlier job left open ends with the next one, and its token with it.
func TestBootOfAnotherJob(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.begin("r01", "7")
	old := b.urls(macOf(0))
	b.begin("r01", "8")

	if status, _ := b.get(old[0]); status != http.StatusNotFound {
		t.Errorf("the token of the former boot is good for %d", status)
	}
	if _, err := b.Await(t.Context(), "r01", "7", 0); inventory.KindOf(err) != inventory.KindRefused {
		t.Errorf("the former boot goes on: %v", err)
	}
	if status, _ := b.get(b.urls(macOf(0))[0]); status != http.StatusOK {
		t.Errorf("the new boot: %d", status)
	}

	for i := range 9 {
		b.begin("r01", fmt.Sprint("j", i))
	}

	r, _ := b.store.Latest()
	open := 0
	boots := NodeBoots(r, "r01").Boots
	for _, one := range boots {
		if one.Ended == nil {
			open++
		}
	}
	if len(boots) != 5 || open != 1 || boots[4].Job != "j8" {
		t.Errorf("%d boots are kept, of which %d are open: %+v", len(boots), open, boots)
	}

	if users := UsersOf(r, "k1"); len(users) != 1 || !strings.Contains(users[0], "j8") || len(UsersOf(r, "k2")) > 0 {
		t.Errorf("the image is used by %q", users)
	}
}

// TestBootPort: a machine that boots by another port than its first gets the order for that one, in the network of the
// instance that serves it.
func TestBootPort(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.register("r01", "52:54:00:00:01:01", macOf(0))
	b.write(func(tx *record.Tx) {
		record.Put(tx, &Kind, &api.Address{Addr: "10.8.1.5", Node: "r01", MAC: "52:54:00:00:01:01"})
		record.Put(tx, &Kind, &api.Address{Addr: "10.9.1.7", Node: "r01", MAC: macOf(0)})
	})
	b.config.Gateway = netip.MustParseAddr("10.9.1.1")
	b.begin("r01", "7")

	_, initrd := b.get(b.urls(macOf(0))[1])
	if o := b.order(initrd).Interface; o.MAC != macOf(0) || o.Address.String() != "10.9.1.7/24" ||
		o.Gateway.String() != "10.9.1.1" {
		t.Errorf("the order is %+v", o)
	}
}

// away is a store that takes no writes.
type away struct{ *recordtest.Store }

func (away) Commit(context.Context, *record.Tx) (int64, error) {
	return 0, inventory.Errorf(inventory.KindUnavailable, "the store is away")
}

// TestBootTakenOver: the next owner of a job needs neither image nor network to go on with its boot, and what was heard
// while the store was away is recorded later.
func TestBootTakenOver(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.begin("r01", "7")
	b.happened("r01", FromHTTP, "something")

	b.Store = away{b.store}
	if err := b.recordEvents(t.Context()); err == nil {
		t.Error("events were recorded without a store")
	}
	b.Store = b.store

	b.Environments = kernels{"/nowhere"}
	b.networks = nil
	b.write(func(tx *record.Tx) { record.Remove(tx, &Kind, "10.9.1.100") })

	asked := func(context.Context) (string, error) { return "", errors.New("it was asked") }
	is, err := b.Begin(t.Context(), Order{Node: "r01", Job: "7", Then: asked})
	if err != nil || is.Job != "7" {
		t.Errorf("%+v, %v", is, err)
	}

	if all := b.events("r01"); !slices.Contains(all, "http: something (1)") {
		t.Errorf("events %q", all)
	}
}

// TestBootEvents: what a machine does again and again is counted, and the record stays small.
func TestBootEvents(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.happened("r01", FromHTTP, "before")
	b.begin("r01", "7")

	for i := range 300 {
		b.happened("r01", FromDHCP, "the same")
		b.happened("r01", FromHTTP, fmt.Sprint("another ", i, strings.Repeat("x", 1000)))
		_ = b.events("r01")
	}

	all := b.events("r01")
	if len(all) != keptEvents || all[0] != "dhcp: the same (300)" || !strings.Contains(all[len(all)-1], "another 299") {
		t.Errorf("%d events: %.100q … %.100q", len(all), all[0], all[len(all)-1])
	}
	if n := len(strings.Join(all, "")); n > keptEvents*(maxEvent+50) {
		t.Errorf("they have %d bytes", n)
	}
}

// TestBootGone: the boots of a machine that is forgotten go with it, and an open one ends with its job.
func TestBootGone(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 2)
	b.begin("r01", "7")
	b.begin("r02", "7")
	b.write(func(tx *record.Tx) {
		record.Remove(tx, &job.Nodes, "r01")
		record.Put(tx, &job.Kind, &job.Job{ID: "7", Status: job.Running})
	})
	b.round()

	r, _ := b.store.Latest()
	if left := record.List(r, &BootsKind); len(left) != 1 || left[0].Node != "r02" || left[0].Open() == nil {
		t.Errorf("there are boots of %d machines: %+v", len(left), left)
	}

	// Its job ends, and nobody has told the boot so.
	b.write(func(tx *record.Tx) {
		j := *record.Get(tx, &job.Kind, "7")
		j.Status = job.Cancelled
		record.Put(tx, &job.Kind, &j)
	})
	b.round()

	if status, _ := b.get("/boot/script?mac=" + macOf(1)); status != http.StatusNotFound {
		t.Errorf("a machine is served whose job has ended: %d", status)
	}
}

// TestBootReady names what is missing before a job is accepted.
func TestBootReady(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.register("bare")
	r, _ := b.store.Latest()

	if err := b.Ready(r, "r01"); err != nil {
		t.Error(err)
	}
	b.refused("without a port", b.Ready(r, "bare"), "not registered with a network port")

	b.register("twin", "52:54:00:00:00:01")
	r, _ = b.store.Latest()
	b.refused("a twin", b.Ready(r, "r01"), "both r01 and twin have the MAC 52:54:00:00:00:01")

	b.servers["eth1"] = &serving{problem: errors.New("there is no network interface eth1")}
	b.refused("an interface that is not served", b.Ready(r, "r01"), "there is no network interface eth1")
	delete(b.servers, "eth1")

	folder := b.config.IPXE
	b.config.IPXE = t.TempDir()
	b.refused("without iPXE", b.Ready(r, "r01"), "iPXE is not in")
	b.config.IPXE = folder

	b.config.Interfaces = nil
	b.refused("without a network", b.Ready(r, "r01"), "serves no network")
}

// TestBootStalls: a machine that stops to read a file holds nobody up, and its transfer ends with the service.
func TestBootStalls(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.begin("r01", "7")

	ctx, cancel := context.WithCancel(t.Context())
	l, err := listenOn(ctx, "lo", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}

	ended := make(chan error, 1)
	go func() { ended <- web{b.Service, netip.MustParsePrefix("10.9.1.254/24")}.serveWeb(ctx, l) }()

	b.url = "http://" + l.Addr().String()
	kernel := b.urls(macOf(0))[0]

	for range 20 {
		r, err := http.Get(kernel) //nolint:noctx // it is never read
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
	}

	if status, got := b.get(kernel); status != http.StatusOK || len(got) != len(b.kernel) {
		t.Errorf("beside stalled transfers: %d, %d bytes", status, len(got))
	}

	cancel()

	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the service has not ended")
	}
}

// TestBootReportRefuses takes no report that is none, and records nothing of it.
func TestBootReportRefuses(t *testing.T) {
	t.Parallel()

	b := newBootSite(t, 1)
	b.begin("r01", "7")
	_, initrd := b.get(b.urls(macOf(0))[1])
	o := b.order(initrd)

	for name, body := range map[string]any{
		"a text": "x", "a list": []int{1}, "too long": report.Message{Message: strings.Repeat("x", report.MaxMessage)},
	} {
		if status, _ := b.do(http.MethodPost, o.Report.URL, o.Report.Token, body); status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, status)
		}
	}

	many := report.Message{Stage: "st\nage", Message: "a\x00b\u202ec"}
	for i := range 1000 {
		many.Problems = append(many.Problems, fmt.Sprint("p", i))
	}

	if status, _ := b.do(http.MethodPost, o.Report.URL, o.Report.Token, many); status != http.StatusOK {
		t.Errorf("many problems: %d", status)
	}

	all := b.events("r01")
	if !slices.Contains(all, "report: st age: a b c (1)") ||
		!slices.Contains(all, "report: and 980 problems more (1)") {
		t.Errorf("%q", all)
	}

	if _, err := b.Await(b.canceled(), "r01", "7", 1000); !errors.Is(err, context.Canceled) {
		t.Errorf("there are facts: %v", err)
	}

	// Who cannot tell the facts says why, and the job need not wait for them.
	sad := report.Message{Stage: report.Problem, Message: "the collector\nhas failed"}
	if status, text := b.do(http.MethodPost, o.Report.URL, o.Report.Token, sad); status != http.StatusOK ||
		!strings.Contains(text, report.Off) {
		t.Errorf("a problem: %d %s", status, text)
	}
	if _, err := b.Await(t.Context(), "r01", "7", 1000); err == nil ||
		!strings.Contains(err.Error(), "cannot tell the facts: the collector has failed") {
		t.Errorf("after a problem: %v", err)
	}
}

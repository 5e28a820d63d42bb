// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// world is a running clusterm with its own directory.
type world struct {
	*client.Client
	dir    string
	bin    string
	url    string // of the API over loopback TCP
	socket string
	raw    *clientv3.Client // a direct connection to its etcd
	http   *http.Client     // with persistent connections
	cmd    *exec.Cmd
	prefix []string // a command that runs clusterm, such as `lab run`
	log    *os.File
	names  int // number of prefixes that prefixFor has given out
}

// keys is the prefix of all keys of clusterm. It repeats etcd.Keys(etcd.DefaultPrefix)
// of inventory/etcd, which would link the whole etcd server.
const keys = "/clusterm/v1"

// settings is the configuration of a world. The gossip is off: nodes are reported by
// POST /monitor/event.
const settings = `data_dir: %[1]s/data
socket: %[1]s/api.sock
plain_http: 127.0.0.1:%[2]d
plain_http_role: operator
node: {label: bench, serial: "1", addr: 127.0.0.1}
gossip: off
max_body: 16777216
`

// world starts clusterm in a new directory. extra is added to its configuration;
// through is a command that runs it.
func (b *bench) world(ctx context.Context, extra string, through ...string) (*world, error) {
	dir, err := os.MkdirTemp(b.dir, "w")
	if err != nil {
		return nil, err
	}

	port, err := freePort()
	if err != nil {
		return nil, err
	}

	w := &world{
		dir:    dir,
		bin:    b.bin,
		url:    fmt.Sprintf("http://127.0.0.1:%d", port),
		socket: filepath.Join(dir, "api.sock"),
		prefix: through,
	}

	config := fmt.Appendf(nil, settings+extra, dir, port)
	if err := os.WriteFile(filepath.Join(dir, "clusterm.yaml"), config, 0o600); err != nil {
		return nil, err
	}

	w.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
	if w.Client, err = client.New(client.Options{Socket: w.socket}); err != nil {
		return nil, err
	}

	if w.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		return nil, err
	}

	if err := w.start(ctx); err != nil {
		// The log is in the directory that close removes, but start has copied its end.
		return nil, errors.Join(err, w.close())
	}

	w.raw, err = dial(filepath.Join(dir, "data/etcd/client.sock"))
	if err != nil {
		return nil, errors.Join(err, w.close())
	}

	return w, nil
}

// full is a world with all nodes in its inventory.
func (b *bench) full(ctx context.Context, extra string) (*world, error) {
	w, err := b.world(ctx, extra)
	if err != nil {
		return nil, err
	}

	if err := w.fill(ctx, b.nodes); err != nil {
		return nil, errors.Join(err, w.close())
	}

	return w, nil
}

func dial(socket string) (*clientv3.Client, error) {
	return clientv3.New(
		clientv3.Config{Endpoints: []string{"unix://" + socket}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()},
	)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()

	return l.Addr().(*net.TCPAddr).Port, nil
}

// begin starts the process and does not wait until it answers.
func (w *world) begin() error {
	argv := slices.Concat(w.prefix,
		[]string{filepath.Join(w.bin, "clusterm"), "--config", filepath.Join(w.dir, "clusterm.yaml")})
	w.cmd = exec.Command(argv[0], argv[1:]...)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	// A Ctrl-C must not reach clusterm: stop ends it.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	return w.cmd.Start()
}

// start starts the process and waits until it answers.
func (w *world) start(ctx context.Context) error {
	if err := w.begin(); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	for {
		// Any request does; this one needs no nodes.
		_, err := w.Groups(ctx)
		if err == nil {
			return nil
		}

		select {
		case <-ctx.Done():
			return fmt.Errorf("clusterm does not answer: %w\n%s", err, w.logTail())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logTail is the end of clusterm's log.
func (w *world) logTail() string {
	text, _ := os.ReadFile(w.log.Name())
	return string(text[max(0, len(text)-2000):])
}

// stop ends the process and waits for it.
func (w *world) stop() error {
	if w.cmd == nil || w.cmd.Process == nil {
		return nil
	}

	_ = w.cmd.Process.Signal(syscall.SIGTERM)

	// The whole group: a hanging etcd would keep the directory.
	force := time.AfterFunc(40*time.Second, func() { _ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) })
	defer force.Stop()
	err := w.cmd.Wait()
	w.cmd = nil

	// An exit status does not matter after a signal.
	if _, exited := errors.AsType[*exec.ExitError](err); exited {
		return nil
	}

	return err
}

// discard closes a world after its measurements, when a failure no longer matters.
func (w *world) discard() { _ = w.close() }

func (w *world) close() error {
	var errs []error
	if w.raw != nil {
		errs = append(errs, w.raw.Close())
	}

	w.http.CloseIdleConnections()
	errs = append(errs, w.stop(), w.log.Close(), os.RemoveAll(w.dir))

	return errors.Join(errs...)
}

// prefixFor returns an unused prefix of keys for a baseline.
func (w *world) prefixFor(what string) string {
	w.names++
	return fmt.Sprintf("/bench/%s/%d/", what, w.names)
}

// label and name identify a node by its number.
func label(i int) string { return fmt.Sprintf("host%05d", i) }
func name(i int) string  { return label(i) + "-0123456789ab" }

// event reports count nodes from the number first on as discovered or disappeared.
func (w *world) event(ctx context.Context, kind string, first, count int, addr func(i int) string) error {
	return w.post(ctx, "/monitor/event", reportOf(kind, first, count, addr))
}

// reportOf returns the body of a report about the nodes first to first+count-1.
func reportOf(kind string, first, count int, addr func(i int) string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"monitor_event":{"name":%q,"nodes":[`, kind)

	for i := first; i < first+count; i++ {
		if i > first {
			b.WriteByte(',')
		}

		fmt.Fprintf(&b, `{"label":%q,"serial":"0123456789ab","addr":%q}`, label(i), addr(i))
	}

	b.WriteString(`]}}`)

	return b.Bytes()
}

func addrOf(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

func (w *world) post(ctx context.Context, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}

	req.Header.Set("Content-Type", api.TypeJSON)

	res, err := w.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, bytes.TrimSpace(text))
	}

	return err
}

// fill reports the nodes 0 to count-1 as discovered, 1000 to a request.
func (w *world) fill(ctx context.Context, count int) error {
	for first := 0; first < count; first += 1000 {
		if err := w.event(ctx, "discovered", first, min(1000, count-first), addrOf); err != nil {
			return err
		}
	}

	return nil
}

// fetch reads a response of status 200 into the buffer.
func fetch(ctx context.Context, c *http.Client, url string, buf *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()

	buf.Reset()

	// One allocation at most, so that the row measures the server.
	if n := int(res.ContentLength); n > buf.Cap() {
		buf.Grow(n + 64<<10)
	}

	_, err = buf.ReadFrom(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, res.Status, buf.Bytes())
	}

	return err
}

// overSocket returns an HTTP client that connects to clusterm's Unix socket for any URL.
func (w *world) overSocket() *http.Client {
	var d net.Dialer

	return &http.Client{
		Transport: &http.Transport{DisableCompression: true, DialContext: func(
			ctx context.Context, _, _ string,
		) (net.Conn, error) {
			return d.DialContext(ctx, "unix", w.socket)
		}},
	}
}

// resident is the proportional set size of a process in MiB: its private memory, and
// its share of the memory that it shares.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}

	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
			kib, err := strconv.Atoi(f[1])
			return float64(kib) / 1024, err
		}
	}

	return 0, fmt.Errorf("/proc/%d/smaps_rollup has no Pss", pid)
}

// children lists the child processes of a process.
func children(pid int) ([]int, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}

	var out []int
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}

		for _, f := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return nil, err
			}

			out = append(out, child)
		}
	}

	return out, nil
}

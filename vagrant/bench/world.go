// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

// world is a running clusterm with its own directory.
type world struct {
	*client.Client
	bench  *bench
	dir    string
	url    string // of the API over loopback TCP
	socket string
	raw    *clientv3.Client // a direct connection to its etcd
	http   *http.Client     // with persistent connections
	cmd    *exec.Cmd
	prefix []string // a command that runs clusterm, such as `lab run`
	log    *os.File
	used   int // number of prefixes that unused has given out
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

// world starts clusterm in a new directory, until the rows of the group are measured. extra is
// added to its configuration; through is a command that runs it.
func (b *bench) world(ctx context.Context, extra string, through ...string) *world {
	dir, port := must(os.MkdirTemp(b.dir, "w")), freePort()
	config := fmt.Appendf(nil, settings+extra, dir, port)
	check(os.WriteFile(filepath.Join(dir, "clusterm.yaml"), config, 0o600))

	w := &world{
		bench:  b,
		dir:    dir,
		url:    fmt.Sprintf("http://127.0.0.1:%d", port),
		socket: filepath.Join(dir, "api.sock"),
		prefix: through,
		log:    must(os.Create(filepath.Join(dir, "log"))),
		http:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}},
	}
	w.Client = must(client.New(client.Options{Socket: w.socket}))

	b.cleanup(w.close)
	w.begin()
	w.answered(ctx, time.Now(), func() error { _, err := w.Groups(ctx); return err }) // needs no nodes

	w.raw = must(dial(w.etcdSocket()))

	return w
}

// full is a world with all nodes in its inventory.
func (b *bench) full(ctx context.Context, extra string) *world {
	w := b.world(ctx, extra)
	w.fill(ctx, b.nodes)
	return w
}

func (w *world) etcdSocket() string { return filepath.Join(w.dir, "data/etcd/client.sock") }

func dial(socket string) (*clientv3.Client, error) {
	return clientv3.New(
		clientv3.Config{Endpoints: []string{"unix://" + socket}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()},
	)
}

func freePort() int {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// begin starts the process and does not wait until it answers.
func (w *world) begin() {
	argv := slices.Concat(w.prefix,
		[]string{filepath.Join(w.bench.bin, "clusterm"), "--config", filepath.Join(w.dir, "clusterm.yaml")})
	w.cmd = exec.Command(argv[0], argv[1:]...)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	// A Ctrl-C must not reach clusterm: stop ends it.
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	check(w.cmd.Start())
}

// answered asks until there is an answer, and returns the seconds since begun.
func (w *world) answered(ctx context.Context, begun time.Time, ask func() error) float64 {
	if err := poll(ctx, ask); err != nil {
		text, _ := os.ReadFile(w.log.Name())
		fail("clusterm does not answer: %w\n%s", err, text[max(0, len(text)-2000):])
	}

	return time.Since(begun).Seconds()
}

// poll asks until there is no error, for a minute at most.
func poll(ctx context.Context, ask func() error) error {
	for limit := time.Now().Add(time.Minute); ; {
		err := ask()
		if err == nil || ctx.Err() != nil || time.Now().After(limit) {
			return err
		}

		<-time.After(2 * time.Millisecond)
	}
}

// stop ends the process and waits for it.
func (w *world) stop() {
	if w.cmd == nil || w.cmd.Process == nil {
		return
	}

	_ = w.cmd.Process.Signal(syscall.SIGTERM)

	// The whole group: a hanging etcd would keep the directory.
	force := time.AfterFunc(40*time.Second, func() { _ = syscall.Kill(-w.cmd.Process.Pid, syscall.SIGKILL) })
	_ = w.cmd.Wait()
	force.Stop()

	w.cmd = nil
}

// close ends the world, whose measurements are over: a failure no longer matters.
func (w *world) close() {
	if w.raw != nil {
		_ = w.raw.Close()
	}

	w.http.CloseIdleConnections()
	w.stop()
	_ = w.log.Close()
	_ = os.RemoveAll(w.dir)
}

// unused returns a prefix of keys for a baseline.
func (w *world) unused() string {
	w.used++
	return fmt.Sprintf("/bench/%d/", w.used)
}

// label and name identify a node by its number.
func label(i int) string { return fmt.Sprintf("host%05d", i) }
func name(i int) string  { return label(i) + "-0123456789ab" }

// firstNodes names the first nodes.
func firstNodes(count int) (out []string) {
	for i := range count {
		out = append(out, name(i))
	}

	return out
}

func addrOf(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// report reports the nodes first to first+count-1 as discovered or disappeared.
func (w *world) report(ctx context.Context, kind string, first, count int, addr func(i int) string) error {
	var nodes []string
	for i := first; i < first+count; i++ {
		nodes = append(nodes, fmt.Sprintf(`{"label":%q,"serial":"0123456789ab","addr":%q}`, label(i), addr(i)))
	}

	body := fmt.Sprintf(`{"monitor_event":{"name":%q,"nodes":[%s]}}`, kind, strings.Join(nodes, ","))

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/monitor/event", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", api.TypeJSON)

	return send(w.http, req, &bytes.Buffer{})
}

// fill reports the first nodes as discovered, 1000 to a request.
func (w *world) fill(ctx context.Context, count int) {
	for first := 0; first < count; first += 1000 {
		check(w.report(ctx, "discovered", first, min(1000, count-first), addrOf))
	}
}

// flips reports nodes far apart one after the other, each as the opposite of what it was.
type flips struct {
	*world
	gone []bool
	next int
}

func (w *world) flips() *flips { return &flips{world: w, gone: make([]bool, w.bench.nodes)} }

// turn chooses the next node, and returns its new state and the function that reports it.
func (f *flips) turn(ctx context.Context) (node string, state inventory.State, do func() error) {
	i, kind := f.next, "disappeared"
	state = inventory.Disappeared

	if f.gone[i] {
		kind, state = "discovered", inventory.Discovered
	}

	f.gone[i], f.next = !f.gone[i], (i+97)%len(f.gone)

	return name(i), state, func() error { return f.report(ctx, kind, i, 1, addrOf) }
}

// fetch reads a response of status 200 into the buffer.
func fetch(ctx context.Context, c *http.Client, url string, buf *bytes.Buffer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return send(c, req, buf)
}

// send sends a request, and reads the response, which must be a success, into the buffer.
func send(c *http.Client, req *http.Request, buf *bytes.Buffer) error {
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
	if err == nil && res.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %.200s", req.URL, res.Status, buf.Bytes())
	}

	return err
}

// socketURL is the base of URLs for a client with a single connection.
const socketURL = "http://clusterm"

// overSocket returns an HTTP client with one connection to clusterm's Unix socket.
func (w *world) overSocket(ctx context.Context) *http.Client {
	return w.bench.over(ctx, must(net.Dial("unix", w.socket)), "")
}

// over returns an HTTP client with one connection, until the rows are measured. It sends the
// token, if there is one.
func (b *bench) over(ctx context.Context, c net.Conn, token string) *http.Client {
	b.cleanup(func() { c.Close() })

	// A request that hangs ends with the benchmark.
	context.AfterFunc(ctx, func() { c.Close() })
	return &http.Client{Transport: connection{c, bufio.NewReader(c), token}}
}

// connection is a transport. That of net/http hands each request to two goroutines of its own,
// which takes longer than the manager needs for it.
type connection struct {
	net.Conn
	answers *bufio.Reader
	token   string
}

func (c connection) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}

	if err := r.Write(c); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.answers, r)
}

// carryOut submits a job, and returns it when it is complete.
func (w *world) carryOut(ctx context.Context, request api.JobRequest) api.Job {
	return w.complete(ctx, must(w.Submit(ctx, request)).ID)
}

// complete waits until the job is complete.
func (w *world) complete(ctx context.Context, id string) api.Job {
	j := must(w.WaitJob(ctx, id))
	if j.Status != api.Complete {
		fail("job %s is %s: %s", j.ID, j.Status, j.Message)
	}
	return j
}

// quarantine makes the first nodes Quarantined: it forgets them and reports them again.
func (w *world) quarantine(ctx context.Context, count int) {
	_ = must(w.Forget(ctx, api.Forget{Nodes: firstNodes(count), Force: true}))
	w.fill(ctx, count)
}

// clearing requests the only verb that needs no playbook. With force it takes a node from
// Quarantined to Decommissioning at its claim, and to Unallocated at its end.
func clearing(nodes ...string) api.JobRequest {
	return api.JobRequest{Verb: inventory.VerbClear, Nodes: nodes, JobOptions: inventory.JobOptions{
		Force: true, SharedOptions: inventory.SharedOptions{Reason: "bench"},
	}}
}

// record is the stored record of a node, for a baseline that writes as many bytes.
func (w *world) record(ctx context.Context) string { return w.largest(ctx, "/v/nodes/"+name(0)) }

// largest returns the largest value with the prefix.
func (w *world) largest(ctx context.Context, key string) (out string) {
	for _, kv := range must(w.raw.Get(ctx, keys+key, clientv3.WithPrefix())).Kvs {
		if len(kv.Value) > len(out) {
			out = string(kv.Value)
		}
	}

	if !json.Valid([]byte(out)) {
		fail("there is no record below %s", key)
	}

	return out
}

// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/environment"
	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

const (
	// WebPort is where machines fetch what they boot.
	WebPort = 9480

	maxConns    = 1024
	maxProblems = 20 // of a report
	// A transfer goes on as long as it moves: each chunk has its own deadline.
	chunk     = 4 << 20
	chunkTime = time.Minute
)

// The files of the environment.
const (
	fileKernel = "kernel"
	fileInitrd = "initrd"
)

// web is what one interface serves by HTTP.
type web struct {
	*Service

	own netip.Prefix // of this instance on the interface
}

func (w web) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+netboot.PathScript, w.script)
	mux.HandleFunc("GET "+netboot.PathFiles+"{name}", w.loader)
	mux.HandleFunc("GET "+netboot.PathBoot+"{node}/{token}/{file}", w.file)
	mux.HandleFunc("POST "+netboot.PathBoot+"{node}/report", w.takeReport)
	mux.HandleFunc("GET "+netboot.PathBoot+"{node}/"+fileImage, w.image)
	mux.HandleFunc("POST "+netboot.PathBoot+"{node}/{token}/"+calledHome, w.takeCall)

	return mux
}

// serveWeb serves a listener until ctx ends, and ends all transfers then.
func (w web) serveWeb(ctx context.Context, l net.Listener) error {
	server := http.Server{
		Handler: w.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10, BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()

	err := server.Serve(netutil.LimitListener(l, maxConns))
	if ctx.Err() != nil {
		return nil
	}

	return err
}

// listenOn binds a TCP port of the address on its interface alone.
func listenOn(ctx context.Context, on string, at netip.AddrPort) (net.Listener, error) {
	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), on) })
		return errors.Join(failed, err)
	}}

	return listen.Listen(ctx, "tcp4", at.String())
}

// here is where the machine has reached this service.
func here(r *http.Request) (netip.AddrPort, bool) {
	local, known := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !known {
		return netip.AddrPort{}, false
	}
	at := local.AddrPort()

	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), true
}

// script is what iPXE carries out.
func (w web) script(out http.ResponseWriter, r *http.Request) {
	mac := r.URL.Query().Get("mac")
	m := w.machine(mac)
	at, known := here(r)

	if m == nil || m.Twin != "" || !m.Boots || !known {
		http.Error(out, "no machine with this MAC is asked to boot from the network", http.StatusNotFound)
		return
	}

	records, _ := w.Store.Latest()
	b := record.Get(records, &BootsKind, m.Node)

	open := b.Open()
	if !b.Serves() { // it has reported or ended just now
		http.Error(out, "no boot is open", http.StatusNotFound)
		return
	}

	token := b.token()
	if token == "" {
		w.happened(
			m.Node,
			FromHTTP,
			"asked for its script, and its token cannot be read: the key of the secrets is missing",
		)
		http.Error(out, "the token cannot be read", http.StatusServiceUnavailable)

		return
	}

	base := url.URL{Scheme: "http", Host: at.String()}
	files := base.JoinPath(netboot.PathBoot, m.Node, token)
	again := base.JoinPath(netboot.PathScript)
	again.RawQuery = url.Values{"mac": {mac}}.Encode()

	w.happened(m.Node, FromHTTP, "asked for its script, and got it")
	out.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(out, scriptText, m.Node, open.Purpose, open.Job,
		files.JoinPath(fileKernel), files.JoinPath(fileInitrd), again)
}

// scriptText is a script of iPXE. It asks again until the machine has booted, or nobody wants it to any more. The
// serial console comes last, so that it is that of the environment where there is one.
const scriptText = `#!ipxe
echo clusterm: %s boots to %s it, for job %s
kernel %s initrd=initrd console=tty0 console=ttyS0,115200 panic=60 || goto failed
initrd --name initrd %s || goto failed
boot || goto failed
:failed
echo clusterm: that failed; trying again in 10 seconds
imgfree
sleep 10
chain --replace %s || exit 1
`

// loader gives iPXE to the firmware of a machine that boots by HTTP.
func (w web) loader(out http.ResponseWriter, r *http.Request) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)

	content, size, err := w.openLoader(from.Addr(), r.PathValue("name"), FromHTTP)
	if err != nil {
		http.Error(out, err.Error(), http.StatusNotFound)
		return
	}
	defer content.Close()

	_ = send(out, size, content)
}

// openLoader opens a program of iPXE for the machine with an address, and notes it.
func (s *Service) openLoader(from netip.Addr, name, by string) (io.ReadCloser, int64, error) {
	m := s.machineAt(from)
	if m == nil || !m.Boots {
		return nil, 0, refused("no machine with the address %s is asked to boot from the network", from)
	}

	f, size, err := s.openProgram(name)

	text := "asked for " + inventory.Shorten(name, maxShown) + ", and got it"
	if err != nil {
		text = "asked for " + inventory.Shorten(name, maxShown) + ", and got nothing: " + err.Error()
	}
	s.happened(m.Node, by, text)

	if err != nil {
		return nil, 0, err // and no file that is nil as an interface
	}

	return f, size, nil
}

func (s *Service) openProgram(name string) (*os.File, int64, error) {
	i := slices.Index(netboot.Files(), name)
	if i < 0 {
		return nil, 0, inventory.Errorf(inventory.KindNotFound, "there is no such file")
	}

	f, err := os.Open(filepath.Join(s.Config().IPXE, netboot.Files()[i]))
	if err != nil {
		return nil, 0, inventory.Errorf(inventory.KindNotFound, "iPXE cannot be read: %w", err).
			Do("install Debian's package ipxe on the hosts of all instances, or set boot.ipxe to a folder with %s",
				name)
	}

	is, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}

	return f, is.Size(), nil
}

// file gives a file of the environment to the machine that has the token.
func (w web) file(out http.ResponseWriter, r *http.Request) {
	node, name := r.PathValue("node"), r.PathValue("file")
	records, _ := w.Store.Latest()
	b := record.Get(records, &BootsKind, node)

	if !b.Serves() || !b.Has(r.PathValue("token")) {
		http.Error(out, "no boot with this token is open", http.StatusNotFound)
		return
	}

	if err := w.sendFile(out, r, records, b, name); err != nil {
		w.happened(node, FromHTTP, "asked for the "+inventory.Shorten(name, maxShown)+": "+err.Error())
	}
}

func (w web) sendFile(out http.ResponseWriter, r *http.Request, records record.Reader, b *Boots, name string) error {
	if name != fileKernel && name != fileInitrd {
		http.NotFound(out, r)
		return errors.New("there is no such file")
	}

	f, err := w.Environments.Open(r.Context(), b.Open().Image, name)
	if err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return err
	}
	defer f.Close()

	var order []byte
	if name == fileInitrd {
		if order, err = w.order(r, records, b); err != nil {
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
			return err
		}
	}

	if err := sendAfter(out, order, f); err != nil {
		return err
	}
	w.happened(b.Node, FromHTTP, "fetched the "+name)

	return nil
}

// sendAfter sends a file after some bytes.
func sendAfter(out http.ResponseWriter, before []byte, f *os.File) error {
	is, err := f.Stat()
	if err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return err
	}

	parts := []io.Reader{f}
	if len(before) > 0 {
		parts = []io.Reader{bytes.NewReader(before), f}
	}

	if err := send(out, int64(len(before))+is.Size(), parts...); err != nil {
		return fmt.Errorf("the transfer broke off: %w", err)
	}

	return nil
}

// send sends parts as one file.
func send(out http.ResponseWriter, size int64, parts ...io.Reader) error {
	out.Header().Set("Content-Type", "application/octet-stream")
	out.Header().Set("Content-Length", fmt.Sprint(size))

	control := http.NewResponseController(out)

	for _, part := range parts {
		for {
			if err := control.SetWriteDeadline(time.Now().Add(chunkTime)); err != nil {
				return err
			}

			_, err := io.CopyN(out, part, chunk)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
	}

	return control.Flush()
}

// order is what the machine does in its environment, as an archive that comes before it.
func (w web) order(r *http.Request, records record.Reader, b *Boots) ([]byte, error) {
	at, known := here(r)
	if !known {
		return nil, errors.New("the connection has no address")
	}

	var err error
	given := w.given(r, records, b.Node)
	if given == nil {
		return nil, fmt.Errorf("%s has no address in the network %s", b.Node, w.own.Masked())
	}

	config, address := w.Config(), addrOf(given.Addr)

	order := installer.Order{
		Interface: installer.Interface{
			MAC: given.MAC, Address: netip.PrefixFrom(address, w.own.Bits()), DNS: config.DNS,
		},
		Report: installer.Report{
			URL:   (&url.URL{Scheme: "http", Host: at.String()}).JoinPath(netboot.PathBoot, b.Node, "report").String(),
			Token: b.token(),
		},
	}
	if g := config.Gateway; g.IsValid() && w.own.Contains(g) && g != address {
		order.Interface.Gateway = g
	}

	if b.Install != nil {
		order.Install, err = w.install(records, b, order, at)
		if err != nil {
			return nil, err
		}
	}

	return environment.WithOrder(order)
}

// takeReport takes what the boot environment says, and answers what it does next.
func (w web) takeReport(out http.ResponseWriter, r *http.Request) {
	var m report.Message

	token := bearer(r)

	// What comes without the token is not even read.
	if records, _ := w.Store.Latest(); !record.Get(records, &BootsKind, r.PathValue("node")).Has(token) {
		http.Error(out, "no boot with this token is open", http.StatusGone)
		return
	}

	control := http.NewResponseController(out)
	_ = control.SetReadDeadline(time.Now().Add(chunkTime))

	dec := json.NewDecoder(http.MaxBytesReader(out, r.Body, report.MaxMessage))
	if err := dec.Decode(&m); err != nil {
		http.Error(out, "this is no report", http.StatusBadRequest)
		return
	}

	if then, err := w.report(r.Context(), r.PathValue("node"), token, m); err == nil {
		out.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(out).Encode(report.Answer{Then: then})
	} else if inventory.KindOf(err) == inventory.KindRefused {
		http.Error(out, "no boot with this token is open", http.StatusGone)
	} else {
		w.Logger.WithField("node", r.PathValue("node")).WithError(err).Warn("a report of the boot environment is lost")
		http.Error(out, "the manager cannot take the report now", http.StatusServiceUnavailable)
	}
}

// eventsOf are a report in words.
func eventsOf(m report.Message) (all []string) {
	stage := inventory.Shorten(oneLine(m.Stage), maxShown)

	switch text := oneLine(m.Message); {
	case text != "":
		all = append(all, stage+": "+text)
	case m.Facts == nil:
		all = append(all, stage)
	}

	for i, problem := range m.Problems {
		if i == maxProblems {
			all = append(all, fmt.Sprintf("and %d problems more", len(m.Problems)-i))
			break
		}
		all = append(all, "problem: "+oneLine(problem))
	}

	return all
}

// oneLine returns a text of a machine without what could disturb a terminal.
func oneLine(text string) string {
	return strings.Join(
		strings.FieldsFunc(text, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }),
		" ",
	)
}

// given returns the address with which the machine asks, or else the one that it has in this network; nil: none.
func (w web) given(r *http.Request, records record.Reader, node string) *api.Address {
	all := givenTo(records, node)
	from, _ := netip.ParseAddrPort(r.RemoteAddr)

	for _, fits := range []func(netip.Addr) bool{
		func(a netip.Addr) bool { return a == from.Addr() }, w.own.Contains,
	} {
		if i := slices.IndexFunc(all, func(a *api.Address) bool { return fits(addrOf(a.Addr)) }); i >= 0 {
			return all[i]
		}
	}

	return nil
}

// givenTo returns the addresses of a machine, in the order of its ports.
func givenTo(r record.Reader, node string) (given []*api.Address) {
	m := record.Get(r, &state.Machines, node)
	if m == nil {
		return nil
	}

	all := record.List(r, &Kind)
	for _, port := range m.Ports {
		for _, a := range all {
			if a.Node == node && a.MAC == port.MAC && a.Conflict == "" {
				given = append(given, a)
			}
		}
	}

	return given
}

// SPDX-License-Identifier: Apache-2.0

package ansible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/inventory"
)

// Limits of a probe.
const (
	// probes is the number of hosts that are probed at a time; see logins.
	probes = 128

	// portTimeout bounds the connection and the greeting of the server, each.
	portTimeout = 3 * time.Second
	// loginTimeout bounds one login.
	loginTimeout = 15 * time.Second

	maxBanner = 4 << 10 // bytes; a server may send other lines before its version
)

// Prober tries to reach hosts by ssh, with the settings of a run. It changes
// nothing on them and records no host key. Its methods may be called at once.
type Prober struct {
	Dir string // for temporary files; made if it is missing
	SSH string // path or name of ssh; empty: ssh in PATH
	// JumpKeys is the file with the keys of jump hosts, recorded at their first contact. Empty:
	// none is recorded.
	JumpKeys string

	patience time.Duration // in place of portTimeout and loginTimeout; 0: those
	party    string        // "": its logins are not bounded apart from those of all

	once  sync.Once
	turns *turns // of all calls together
}

// For returns a Prober for a party, such as a caller. It shares the logins of p with
// those for other parties, fairly: no party keeps another from its turn.
func (p *Prober) For(party string) *Prober {
	return &Prober{Dir: p.Dir, SSH: p.SSH, JumpKeys: p.JumpKeys, patience: p.patience, party: party, turns: p.pool()}
}

// pool returns the turns to log in.
func (p *Prober) pool() *turns {
	p.once.Do(func() {
		if p.turns == nil {
			p.turns = newTurns()
		}
	})

	return p.turns
}

// slot waits for a turn to log in. The caller must call release. The error is of kind
// busy if too many logins of the party wait.
func (p *Prober) slot(ctx context.Context) (release func(), err error) {
	return p.pool().take(ctx, p.party)
}

// Probe tries a connection to the ssh port and then a login on each host, and
// returns a result for each, in order. It blocks until all have answered or have
// run into a timeout, or ctx ends.
func (p *Prober) Probe(ctx context.Context, hosts []configuration.Host) []configuration.Reach {
	results := make([]configuration.Reach, len(hosts))
	next := make(chan int)

	var workers sync.WaitGroup
	for range min(probes, len(hosts)) {
		workers.Go(func() {
			for i := range next {
				results[i] = p.reach(ctx, hosts[i], "true", nil)
			}
		})
	}

	for i := range hosts {
		next <- i
	}

	close(next)
	workers.Wait()

	return results
}

// reach tries the port of a host, and runs a command of the shell there after a login.
// Its output goes to stdout unless that is nil.
func (p *Prober) reach(
	ctx context.Context, h configuration.Host, command string, stdout io.Writer,
) configuration.Reach {
	if ctx.Err() != nil {
		return noAttempt(ctx)
	}

	began := time.Now()

	// Behind a jump host, only ssh reaches the port.
	if h.Connection.Jump == "" {
		if r := p.probePort(ctx, h); r.Port != "" {
			r.Took = time.Since(began)
			return r
		}
	}

	queued := time.Now()

	release, err := p.slot(ctx)
	if err != nil {
		return configuration.Reach{Login: err.Error()}
	}
	defer release()

	began = began.Add(time.Since(queued))
	r := p.probeLogin(ctx, h, command, stdout)
	r.Took = time.Since(began)

	return r
}

// noAttempt returns the result for a host without a turn.
func noAttempt(ctx context.Context) configuration.Reach {
	reason := "the probe was stopped before its turn"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = "the time was over before its turn"
	}
	return configuration.Reach{Login: "no login was tried: " + reason}
}

// probePort connects to the ssh port of a host and reads the version of the server.
func (p *Prober) probePort(ctx context.Context, h configuration.Host) configuration.Reach {
	port := strconv.Itoa(cmp.Or(h.Connection.Port, 22))

	timeout := cmp.Or(p.patience, portTimeout)
	dialer := net.Dialer{Timeout: timeout}

	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(h.Addr, port))
	if err != nil {
		return configuration.Reach{Port: explainDial(err, port), Silent: !isResolver(err), NoAnswer: isUnanswered(err)}
	}
	defer conn.Close()

	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()

	_ = conn.SetReadDeadline(time.Now().Add(timeout))

	var banner []byte
	for buffer := make([]byte, 512); len(banner) < maxBanner; {
		n, err := conn.Read(buffer)

		banner = append(banner, buffer[:n]...)
		if bytes.HasPrefix(banner, []byte("SSH-")) || bytes.Contains(banner, []byte("\nSSH-")) {
			return configuration.Reach{}
		}

		if err != nil {
			break
		}
	}

	return configuration.Reach{Port: "port " + port + " accepts connections, and no ssh server answers there"}
}

// isResolver reports whether an address is a name that does not resolve.
func isResolver(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

// isUnanswered reports whether a connection failed because the host gave no answer.
func isUnanswered(err error) bool {
	var timeout net.Error
	return !isResolver(err) && (errors.Is(err, syscall.EHOSTUNREACH) || errors.As(err, &timeout) && timeout.Timeout())
}

// explainDial returns the reason of a failed connection in words.
func explainDial(err error, port string) string {
	var timeout net.Error

	switch {
	case isResolver(err):
		return "its name does not resolve"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "port " + port + " refuses connections"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no route to the host"
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer from port %s within %s", port, portTimeout)
	}

	if e, ok := errors.AsType[*net.OpError](err); ok {
		err = e.Err
	}

	return "no connection to port " + port + ": " + err.Error()
}

// probeLogin runs a command on a host.
func (p *Prober) probeLogin(
	ctx context.Context, h configuration.Host, command string, stdout io.Writer,
) configuration.Reach {
	dir, remove, err := p.makeDir(h)
	if err != nil {
		return configuration.Reach{Login: noLogin + err.Error()}
	}
	defer remove()

	r, _ := p.login(ctx, h, append(loginArgs(dir, h), "--", h.Addr, command), nil, stdout)

	return r
}

// noLogin begins the reason of a login that was not tried.
const noLogin = "no login could be tried: "

// makeDir makes a directory with the configuration of ssh for one host.
func (p *Prober) makeDir(h configuration.Host) (dir string, remove func(), err error) {
	if err := os.MkdirAll(p.Dir, 0o700); err != nil {
		return "", nil, err
	}

	if dir, err = os.MkdirTemp(p.Dir, "clusterm-probe-"); err != nil {
		return "", nil, err
	}

	remove = func() { _ = os.RemoveAll(dir) }

	hosts := []configuration.Host{h}
	for name, content := range map[string][]byte{
		fileSSHConfig:  sshConfig(hosts, cmp.Or(p.JumpKeys, filepath.Join(dir, fileJumpKeys))),
		fileKnownHosts: configuration.KnownHosts(hosts), fileTakenKeys: takenKeys(hosts),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			remove()
			return "", nil, err
		}
	}

	return dir, remove, nil
}

// login runs ssh, within loginTimeout. failed is the error of the command after a login.
func (p *Prober) login(
	ctx context.Context, h configuration.Host, args []string, stdin io.Reader, stdout io.Writer,
) (r configuration.Reach, failed error) {
	return p.run(ctx, h, sshCall{
		args: args, stdin: stdin, stdout: stdout, within: loginTimeout, late: "the login was not complete within %s",
	})
}

// sshCall is a call of ssh.
type sshCall struct {
	args   []string
	stdin  io.Reader
	stdout io.Writer
	within time.Duration
	late   string // what a timeout means, with a verb for the time
}

// run runs ssh. failed is the error of the command after a login.
func (p *Prober) run(ctx context.Context, h configuration.Host, call sshCall) (r configuration.Reach, failed error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.patience, call.within))
	defer cancel()

	stderr := beginning{limit: maxMessages}

	//nolint:gosec // CheckHosts has checked every part of the arguments
	cmd := exec.CommandContext(ctx, cmp.Or(p.SSH, "ssh"), call.args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = call.stdin, call.stdout, &stderr
	cmd.WaitDelay = time.Second

	// ssh to a jump host is a child of ssh.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	err := cmd.Run()

	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		// It succeeded, even if a child of it still has the pipes, or this machine was too busy to read them.
		return configuration.Reach{}, nil
	case ended && exit.ExitCode() != sshFailed && ctx.Err() == nil:
		// Another status than ssh's own is that of the command, after a login.
		return configuration.Reach{}, scriptError(exit.ExitCode(), stderr.String())
	case ctx.Err() != nil:
		return configuration.Reach{Login: fmt.Sprintf(call.late, call.within)}, nil
	case !ended:
		return configuration.Reach{Login: noLogin + err.Error()}, nil
	}

	text := stderr.String()

	return configuration.Reach{
		Login:    cmp.Or(explainLogin(text, h), "ssh failed without a message"),
		Silent:   h.Connection.Jump != "" && isSilent(text),
		NoAnswer: h.Connection.Jump != "" && isBeyond(text),
	}, nil
}

// scriptError returns the error of a command on a host, with the end of its messages in
// one line of visible text.
func scriptError(code int, stderr string) error {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")

	text := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, inventory.Shorten(lines[len(lines)-1], 200))

	return fmt.Errorf("exit status %d: %s", code, cmp.Or(text, "no message"))
}

// sshFailed is the exit status of ssh for its own failures.
const sshFailed = 255

// loginArgs returns the options of ssh for a login with the settings of a run. The
// destination and the command follow.
func loginArgs(dir string, h configuration.Host) []string {
	args := []string{
		"-F", filepath.Join(dir, fileSSHConfig), "-T",
		"-o", "UserKnownHostsFile=" + filepath.Join(dir, fileKnownHosts), "-o", "GlobalKnownHostsFile=/dev/null",
		"-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "NumberOfPasswordPrompts=0",
		"-o", "ConnectTimeout=" + strconv.Itoa(int(loginTimeout.Seconds())/2),
	}

	h.TakenFile = takenFile(dir, h)

	c := h.Connection
	// ssh offers keys in this order, the former one among the others last.
	if c.KeyFile != "" {
		// Unlike -i, it leaves the usual keys of the account out also where the file is gone.
		args = append(args, "-o", "IdentityFile="+c.KeyFile)
	}

	args = append(args, configuration.SSHArgs(h)...)
	if c.User != "" {
		args = append(args, "-l", c.User)
	}
	if c.Port != 0 {
		args = append(args, "-p", strconv.Itoa(c.Port))
	}

	return args
}

// explainLogin returns the reason of a failed login in one line.
func explainLogin(stderr string, h configuration.Host) string {
	explained := configuration.ExplainFailure(stderr, h)
	if explained != strings.TrimSpace(stderr) {
		return explained
	}
	lines := strings.Split(explained, "\n")

	return strings.TrimSpace(lines[len(lines)-1])
}

// isSilent reports whether a jump host could not connect to the host.
func isSilent(stderr string) bool {
	return strings.Contains(stderr, "connect failed:") || strings.Contains(stderr, "stdio forwarding failed")
}

// isBeyond reports whether a jump host had no answer from the host.
func isBeyond(stderr string) bool {
	return strings.Contains(stderr, "connect failed: Connection timed out") ||
		strings.Contains(stderr, "connect failed: No route to host")
}

// maxMessages bounds the kept messages of ssh, in bytes.
const maxMessages = 8 << 10

// beginning is a writer that keeps the beginning. It does not embed the buffer, whose ReadFrom would have no bound.
type beginning struct {
	kept  bytes.Buffer
	limit int
	more  bool // something was dropped
}

func (b *beginning) Write(data []byte) (int, error) {
	room := b.limit - b.kept.Len()
	if len(data) > room {
		b.more = true
	}
	b.kept.Write(data[:min(max(room, 0), len(data))])

	return len(data), nil
}

// Bytes returns what was kept.
func (b *beginning) Bytes() []byte { return b.kept.Bytes() }

func (b *beginning) String() string { return b.kept.String() }

// SPDX-License-Identifier: Apache-2.0

package installer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contiv/cluster/configuration/image/kernel"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/facts"
)

// The lines at the console before and after the facts.
const (
	FactsBegin = "-----BEGIN CLUSTERM FACTS-----"
	FactsEnd   = "-----END CLUSTERM FACTS-----"
)

const (
	// worker is the argument of the second process.
	worker = "worker"
	// readTime is how long a problem can be read at the console before the machine restarts.
	readTime = 5 * time.Minute
	// restartTime is how long a restart may take before the machine is reset.
	restartTime = time.Minute
	// factsTime bounds the collection of the facts.
	factsTime = 40 * time.Second
	// round is the time between two looks at what the machine has by now.
	round = 250 * time.Millisecond
)

// Collect returns the facts below a root directory.
type Collect func(ctx context.Context, root string) facts.Facts

// Init is the init of the boot environment. It returns only if the process is none.
func Init(collect Collect) error {
	switch {
	case !inMemory():
	case os.Getpid() == 1:
		supervise()
	case os.Getppid() == 1 && len(os.Args) == 2 && os.Args[1] == worker:
		work(collect)
		return errors.New("the work is over, and the machine did not switch off")
	}

	return inventory.Errorf(inventory.KindRefused,
		"this is the init of the boot environment, and does nothing elsewhere").
		Do("boot a machine with it: it is in the initrd of the boot environment")
}

// inMemory reports whether the root file system is the unpacked initrd.
func inMemory() bool {
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return false
	}
	return root.Type == unix.RAMFS_MAGIC || root.Type == unix.TMPFS_MAGIC
}

// supervise is the first process: it never returns.
func supervise() {
	problems := mountAll(unix.Mount)

	console, err := openConsole(func(name string) (*os.File, error) {
		return os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		problems = append(problems, err)
	}

	for _, p := range problems {
		say(console, "%s", sentence(p))
	}

	// Every other process that ends is an orphan, of which nobody wants to know.
	end, err := runChild(console)
	for err == nil {
		var status unix.WaitStatus

		pid, waitErr := unix.Wait4(-1, &status, 0, nil)
		if pid == end || waitErr != nil && !errors.Is(waitErr, unix.EINTR) {
			err = fmt.Errorf("the program of the boot environment has ended (status %#x)", int(status))
		}
	}

	say(console, "%s", sentence(err))
	restart(console)
}

// openConsole opens the console of the kernel. If console= on its command line names none that the machine has, it is
// the screen, or else the output that the program was started with; the error is for that console.
func openConsole(open func(string) (*os.File, error)) (*os.File, error) {
	console, err := open("/dev/console")
	if err == nil {
		return console, nil
	}

	err = fmt.Errorf("cannot open the console: %w; correct console= on the command line of the kernel", err)
	if screen, failed := open("/dev/tty0"); failed == nil {
		return screen, err
	}

	return os.Stdout, err
}

// runChild starts the program as a child that may fail, and returns its process id.
func runChild(console *os.File) (int, error) {
	program, err := os.Executable()
	if err != nil {
		program = "/init"
	}

	files := []uintptr{console.Fd(), console.Fd(), console.Fd()}

	pid, err := syscall.ForkExec( //nolint:gosec // it is this program itself
		program, []string{program, worker}, &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: files})
	if err != nil {
		return 0, fmt.Errorf("cannot start %s: %w", program, err)
	}

	return pid, nil
}

// work does what the machine was booted for, with the console as its output. It returns only if the machine cannot be
// switched off.
func work(collect Collect) {
	console := os.Stdout
	var problems []string
	report := func(err error) {
		if err != nil {
			say(console, "%s", sentence(err))
			problems = append(problems, err.Error())
		}
	}

	cmdline, err := os.ReadFile("/proc/cmdline")
	report(err)

	p := parseParams(string(cmdline))

	for _, problem := range loadModules(console) {
		report(problem)
	}
	for _, missing := range missingFirmware(kernelLog()) {
		say(console, "%s", missing)
	}

	order, err := readOrder()
	report(err)

	wire, err := network(order, p.bootif)
	report(err)

	linked := wire == nil || awaitLink(wire.hasLink, pause)
	if wire != nil {
		say(console, "%s", sentence(wire.state(linked)))
	}

	// Without a network, nobody can be reported to.
	var manager *reporter
	if wire != nil && !order.Report.isZero() {
		linked = linked || awaitCable(console, wire, wire.hasLink, pause)
		manager = newReporter(order.Report, console)
	}

	quietKernel()
	found, then, err := inspect(console, collect, manager, problems)
	report(err)

	then, err = install(order.Install, manager, problems, found, then)
	report(err)

	if !linked && manager == nil && !p.off {
		linked = awaitCable(console, wire, wire.hasLink, pause)
	}

	e := endingOf(then, p.off, linked && len(problems) == 0)
	if e.text != "" {
		say(console, "%s", e.text)
	}

	switch {
	case e.command != 0:
		report(end(e.command))
	case e.wait:
		for {
			_ = unix.Pause()
		}
	}

	restart(console)
}

// loadModules loads the modules for the devices of the machine.
func loadModules(console io.Writer) []error {
	b, err := os.ReadFile("/" + kernel.IndexFile)
	if err != nil {
		return []error{fmt.Errorf("cannot load any module: %w", err)}
	}

	index, err := decodeIndex(b)
	if err != nil {
		return []error{err}
	}

	by := &patient{console: console, insert: insertModule}
	m := newModules(index, by.load)
	m.settle(func() []string { return findDevices(os.DirFS("/sys/devices")) }, pause)

	return m.problems
}

// insertModule gives the kernel a module of the environment.
func insertModule(m kernel.Module) error {
	f, err := os.Open("/" + m.Path)
	if err != nil {
		return err
	}
	defer f.Close()

	err = unix.FinitModule(int(f.Fd()), "", 0)
	// It is there already; or it has looked for its device, which this machine does not have.
	if errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENODEV) {
		return nil
	}

	return err
}

// readOrder reads the order of the environment. Without a file there is nothing to do.
func readOrder() (Order, error) {
	b, err := os.ReadFile("/" + OrderFile)
	if errors.Is(err, fs.ErrNotExist) {
		return Order{}, nil
	}

	if err != nil {
		return Order{}, fmt.Errorf("cannot read the order: %w", err)
	}
	return Decode(b)
}

// network brings up the loopback and the port of the order, which it returns; nil: there is none.
func network(order Order, bootif net.HardwareAddr) (*port, error) {
	const loopback = 1 // the kernel makes it first
	if err := configure(loopback, netip.Prefix{}, netip.Addr{}); err != nil {
		return nil, fmt.Errorf("cannot bring up the loopback: %w", err)
	}

	if order.Interface.isZero() {
		return nil, nil //nolint:nilnil // there is nothing to do
	}

	return bringUp(order.Interface, bootif)
}

// quietKernel keeps messages of the kernel, errors aside, out of the midst of the facts; see syslog(2).
func quietKernel() {
	const (
		setLevel  = 8
		onlyError = 4
	)
	_, _ = unix.Klogctl(setLevel, make([]byte, onlyError)) // the level is the length
}

func collectFacts(collect Collect) facts.Facts {
	ctx, cancel := context.WithTimeout(context.Background(), factsTime)
	defer cancel()

	return collect(ctx, "/")
}

// printFacts prints the facts as JSON between two lines.
func printFacts(console io.Writer, found facts.Facts) error {
	b, err := json.MarshalIndent(found, "", " ")
	if err != nil {
		return fmt.Errorf("cannot print the facts: %w", err)
	}

	_, err = fmt.Fprintf(console, "%s\n%s\n%s\n", FactsBegin, b, FactsEnd)

	return err
}

// restart lets a person read the console, and restarts the machine. It never returns.
func restart(console io.Writer) {
	for {
		say(console, "The machine restarts in %s.", readTime)
		<-time.After(readTime)

		// The kernel waits for a driver that is stuck in its device.
		cut := time.AfterFunc(restartTime, func() { _ = os.WriteFile("/proc/sysrq-trigger", []byte("b"), 0) })
		err := end(unix.LINUX_REBOOT_CMD_RESTART)
		cut.Stop()
		say(console, "%s", sentence(fmt.Errorf("cannot restart the machine: %w", err)))
	}
}

// end switches the machine off, or restarts it.
func end(command int) error {
	unix.Sync()
	return unix.Reboot(command)
}

func pause() { <-time.After(round) }

// say prints a line at the console.
func say(console io.Writer, format string, args ...any) {
	fmt.Fprintf(console, "clusterm-boot: "+format+"\n", args...)
}

// sentence returns an error as a whole sentence.
func sentence(err error) string {
	text := cmp.Or(err.Error(), "an error has no text")
	return strings.ToUpper(text[:1]) + strings.TrimSuffix(text[1:], ".") + "."
}

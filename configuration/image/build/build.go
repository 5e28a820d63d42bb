// SPDX-License-Identifier: Apache-2.0

// Package build makes disk images of Debian with the tools of Debian, on a machine with Debian and as root. build.sh
// says what is in an image. It runs in namespaces of its own, so that no mount, loop device or process outlives it.
package build

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/contiv/cluster/inventory"
)

//go:embed build.sh
var script string

const (
	// MinSize is the least size of the disk of an image, in bytes.
	MinSize = 1 << 30
	// MaxSize is the largest one.
	MaxSize = 1 << 40
	// maxPackages is the most names that a list can have.
	maxPackages = 1000
	// within bounds a build: archives may be far away, and machines slow.
	within = 2 * time.Hour
	// logEnd is how much of the end of the log is kept, in bytes, and shownLines how many lines of it a failure shows.
	logEnd     = 8 << 10
	shownLines = 15
)

// Options say what to make.
type Options struct {
	Suite    string   // of Debian, such as bookworm
	Arch     string   // amd64 or arm64, which has to be that of this machine
	Size     int64    // of the disk in bytes
	Packages []string // besides those of every image
	Mirrors  []string // URLs or lines of sources.list; none: the sources of this machine's apt
	Agent    string   // the file of the program clusterm; empty: it is left out
	Folder   string   // in which a folder with the image is made
}

// Image is a compressed disk image in a folder of its own.
type Image struct {
	Path     string
	Boot     string // the firmware that it boots with: both, or on arm64 uefi
	Packages int    // that are installed in it

	folder string
}

// Remove removes the image.
func (i *Image) Remove() { _ = os.RemoveAll(i.folder) }

var (
	suiteName   = regexp.MustCompile(`^[a-z][a-z0-9]{1,30}$`)
	packageName = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{1,99}$`)
	mirrorForm  = regexp.MustCompile(`^(deb (\[[^\]]+\] )?)?(https?|file|copy):/[!-~]+( [ -~]+)?$`)
)

// ParsePackages reads a list of packages, one a line. Text after # is a comment.
func ParsePackages(list []byte) ([]string, error) {
	var names []string

	for line := range strings.Lines(string(list)) {
		line, _, _ = strings.Cut(line, "#")
		if name := strings.TrimSpace(line); name != "" {
			names = append(names, name)
		}
	}

	return names, checkPackages(names)
}

func checkPackages(names []string) error {
	if len(names) > maxPackages {
		return inventory.Errorf(inventory.KindTooLarge, "%d packages are too many", len(names)).
			Do("name at most %d, and leave what they need to apt", maxPackages)
	}

	for _, name := range names {
		if !packageName.MatchString(name) {
			return inventory.Errorf(inventory.KindInvalid, "%q is no name of a package", inventory.Shorten(name, 40)).
				Do("names have lower-case letters, digits and +-. alone, such as lldpd; write one a line")
		}
	}

	return nil
}

// Check refuses options that cannot be carried out, and a machine without what a build needs. It changes nothing.
func (o Options) Check() error {
	switch {
	case !suiteName.MatchString(o.Suite):
		return inventory.Errorf(inventory.KindInvalid, "%q is no suite of Debian", inventory.Shorten(o.Suite, 40)).
			Do("name it as bookworm or trixie")
	case o.Size < MinSize || o.Size > MaxSize:
		return inventory.Errorf(inventory.KindInvalid, "a disk of %d bytes cannot be made", o.Size).
			Do("choose a size from 1G to 1T; the machine grows the file system to its own disk")
	}

	if err := checkPackages(o.Packages); err != nil {
		return err
	}

	for _, m := range o.Mirrors {
		if !mirrorForm.MatchString(m) {
			return inventory.Errorf(inventory.KindInvalid, "%q is no mirror", inventory.Shorten(m, 80)).
				Do("give a URL, such as http://deb.debian.org/debian, or a line of sources.list, which begins with deb")
		}
	}

	if o.Arch != runtime.GOARCH || o.Arch != "amd64" && o.Arch != "arm64" {
		return inventory.Errorf(inventory.KindRefused, "this machine (%s) makes no images for %q", runtime.GOARCH,
			inventory.Shorten(o.Arch, 40)).Do("images for amd64 or arm64 are made on a machine of that architecture")
	}

	if err := checkAgent(o.Agent, o.Arch); err != nil {
		return err
	}

	return checkHost(os.Geteuid(), lookPath)
}

// checkAgent expects a program for the architecture.
func checkAgent(path, arch string) error {
	if path == "" {
		return nil
	}

	program, err := elf.Open(path)
	if err != nil {
		return inventory.Errorf(inventory.KindInvalid, "cannot read the agent: %v", err).
			Do("name the program clusterm of this architecture, or leave the agent out")
	}
	defer program.Close()

	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; program.Machine != want {
		return inventory.Errorf(inventory.KindInvalid, "%s is a program for %s, and the image is for %s", path,
			program.Machine, arch).Do("name a clusterm for %s", arch)
	}

	return nil
}

// tools are the programs of a build, each with its package.
var tools = []struct{ program, pkg string }{
	{"bash", "bash"},
	{"mmdebstrap", "mmdebstrap"},
	{"sfdisk", "fdisk"},
	{"losetup", "mount"},
	{"mount", "mount"},
	{"partx", "util-linux"},
	{"blkid", "util-linux"},
	{"fstrim", "util-linux"},
	{"mkfs.vfat", "dosfstools"},
	{"mkfs.ext4", "e2fsprogs"},
	{"mcopy", "mtools"},
	{"zstd", "zstd"},
}

// path is that of root: a user's may lack the programs for administration.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// lookPath reports whether there is a program, or a file with an absolute path.
func lookPath(name string) bool {
	if filepath.IsAbs(name) {
		_, err := os.Stat(name)
		return err == nil
	}

	return slices.ContainsFunc(filepath.SplitList(path), func(dir string) bool {
		_, err := exec.LookPath(filepath.Join(dir, name))
		return err == nil
	})
}

// checkHost names everything that a machine lacks.
func checkHost(uid int, has func(name string) bool) error {
	if !has("apt-get") {
		return inventory.Errorf(inventory.KindRefused, "this machine has no apt").
			Do("make images on a machine with Debian")
	}

	var missing []string

	for _, t := range tools {
		if !has(t.program) {
			missing = append(missing, t.pkg)
		}
	}
	if !has(keyring) {
		missing = append(missing, "debian-archive-keyring")
	}

	if len(missing) > 0 {
		slices.Sort(missing)
		return inventory.Errorf(inventory.KindRefused, "this machine lacks what makes an image").
			Do("apt install %s", strings.Join(slices.Compact(missing), " "))
	}

	if uid != 0 {
		return inventory.Errorf(inventory.KindRefused, "only root can make an image").Do("repeat the command with sudo")
	}

	return nil
}

// Make makes an image, and says what it does. Options have passed their Check. Nothing is left of a build that fails or
// whose context ends.
func Make(ctx context.Context, o Options, say func(text string)) (*Image, error) {
	return makeBy(ctx, script, o, say)
}

func makeBy(ctx context.Context, script string, o Options, say func(text string)) (*Image, error) {
	// The script runs in another directory.
	parent, err := filepath.Abs(o.Folder)
	if err != nil {
		return nil, err
	}

	folder, err := os.MkdirTemp(parent, ".clusterm-image-*")
	if err != nil {
		return nil, inventory.Errorf(inventory.KindInvalid, "cannot make a folder for the image: %v", err).
			Do("check the folder and its free space")
	}

	image := &Image{Path: filepath.Join(folder, "image.zst"), Boot: "both", folder: folder}
	if o.Arch == "arm64" {
		image.Boot = "uefi"
	}

	if err := run(ctx, script, o, folder, say); err != nil {
		image.Remove()
		return nil, err
	}

	// One line for each.
	packages, err := os.ReadFile(filepath.Join(folder, "packages"))
	if err == nil {
		err = os.Remove(filepath.Join(folder, "disk.raw"))
	}
	if err != nil {
		image.Remove()
		return nil, err
	}
	image.Packages = bytes.Count(packages, []byte("\n"))

	return image, nil
}

// run runs the script for a folder.
func run(ctx context.Context, script string, o Options, folder string, say func(text string)) error {
	// The kernel ends the script with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()

	//nolint:gosec // the script is a constant, and the options have been checked
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", script, "build.sh", folder)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + path, "HOME=/root", "SUITE=" + o.Suite, "ARCH=" + o.Arch, "SIZE=" + strconv.FormatInt(o.Size, 10),
		"PACKAGES=" + strings.Join(o.Packages, ","), "MIRRORS=" + strings.Join(o.Mirrors, "\n"), "AGENT=" + o.Agent,
		"SOURCE_DATE_EPOCH=" + cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), strconv.FormatInt(time.Now().Unix(), 10)),
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}

	// It is process 1 of a namespace, so that its end is that of all processes, mounts and loop devices.
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL, Setpgid: true,
	}
	cmd.WaitDelay = 10 * time.Second

	var log tail
	cmd.Stderr = &log

	progress, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return inventory.Errorf(inventory.KindRefused, "cannot start the build: %v", err).
			Do("run it as root of the machine, and not in a container without privileges")
	}

	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		say(lines.Text())
	}
	_, _ = io.Copy(io.Discard, progress)

	err = cmd.Wait()

	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return inventory.Errorf(inventory.KindInternal, "the image was not ready within %s; %s", within, log.last(1)).
			Do("check that the archive can be reached, and repeat the command")
	case ctx.Err() != nil:
		return ctx.Err()
	}

	say(log.last(shownLines))

	return failure(log.String(), o, err)
}

var unknownPackage = regexp.MustCompile(
	`Unable to locate package (\S+)|Package '?([a-z0-9+.-]+)'? has no installation candidate`,
)

// failure returns the error for the log of a build.
func failure(log string, o Options, err error) error {
	unknown := unknownPackage.FindStringSubmatch(log)

	switch {
	case unknown != nil:
		return inventory.Errorf(inventory.KindInvalid, "there is no package %s in %s",
			inventory.Shorten(cmp.Or(unknown[1], unknown[2]), 100), o.Suite).
			Do("correct the list of packages, or name the archive that has it")
	case strings.Contains(log, "no archive of Debian"):
		return inventory.Errorf(inventory.KindRefused, "apt of this machine knows no archive of Debian").
			Do("run apt-get update, or name an archive")
	case strings.Contains(log, "No space left on device"), strings.Contains(log, "enough free space"):
		return inventory.Errorf(inventory.KindInvalid, "the packages do not fit: no space is left on its disk, "+
			"or in %s", o.Folder).
			Do("give a larger size, and check the free space of the folder")
	}

	return inventory.Errorf(inventory.KindInternal,
		"the build of the image failed (%v); the end of its log is above", err).
		Do("most often the archive cannot be reached: try apt-get update, and repeat the command")
}

// tail keeps the end of a log.
type tail struct{ bytes.Buffer }

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)

	t.Buffer.Write(p[max(0, n-logEnd):])
	t.Next(max(0, t.Len()-logEnd))

	return n, nil
}

// last returns the last lines.
func (t *tail) last(n int) string {
	lines := strings.Split(strings.TrimRight(t.String(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// Save moves the image to a new file in the folder of its options.
func (i *Image) Save(file string) error {
	// Unlike a renaming, a link replaces no file that is there.
	err := os.Link(i.Path, file)

	switch {
	case errors.Is(err, fs.ErrExist):
		return inventory.Errorf(inventory.KindRefused, "%s already exists", file).Do("choose another name")
	case err != nil:
		return fmt.Errorf("cannot write %s: %w", file, err)
	}

	return nil
}

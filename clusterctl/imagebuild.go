// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/follow"
	"github.com/contiv/cluster/configuration/image/build"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

// defaultDisk is the size of an image's disk, in bytes.
const defaultDisk = 2 << 30

// buildImage makes an image of Debian, and adds it or writes it to a file. Whatever can refuse it comes first.
func buildImage(ctx context.Context, c *call) error {
	file := c.String("save")
	if (file == "") == (len(c.args) == 0) {
		return exit.Usagef("image build takes either the NAME of a new image, or --save FILE").
			Try("see: clusterctl image build --help")
	}

	o, err := c.buildOptions()
	if err != nil {
		return err
	}

	if file != "" {
		o.Folder = filepath.Dir(file) // where it can be renamed
		if _, err := os.Lstat(file); err == nil {
			return exit.Usagef("%s already exists", file).Try("choose another name")
		}
	} else if err := c.checkNewImage(ctx, c.args[0]); err != nil {
		return err
	}

	if err := o.Check(); err != nil {
		return err
	}

	made, err := build.Make(ctx, o, func(text string) { c.say("%s", text) })
	if ctx.Err() != nil {
		return exit.Errorf(exit.Interrupted, "interrupted").Try("nothing of the image is left")
	}
	if err != nil {
		return err
	}
	defer made.Remove()

	if file != "" {
		if err := made.Save(file); err != nil {
			return err
		}
		return c.write([]byte(file + "\n"))
	}

	source := imageSource{kind: api.ImageDisk, files: []imageFile{{"image", made.Path}}}

	return c.addSource(ctx, source, "the image", api.ImageRequest{
		Name: c.args[0], Kind: source.kind, Arch: o.Arch, Boot: made.Boot, MinDisk: o.Size,
		Description: cmp.Or(c.String("description"), fmt.Sprintf("Debian %s, %d packages", o.Suite, made.Packages)),
	})
}

// checkNewImage refuses a name in use before minutes are spent.
func (c *call) checkNewImage(ctx context.Context, name string) error {
	m, err := c.dial(follow.Patience)
	if err != nil {
		return err
	}
	c.manager = m

	switch _, err := m.Image(ctx, name); {
	case err == nil:
		return exit.Errorf(exit.Refused, "there is an image %s already", name).
			Try("choose another name, such as one with a date, or remove it: %s image remove %s", c.self(), name)
	case inventory.KindOf(err) != inventory.KindNotFound:
		return err
	}

	return nil
}

// buildOptions returns the options of the command line.
func (c *call) buildOptions() (build.Options, error) {
	o := build.Options{
		Suite: c.text("suite", "bookworm"), Arch: c.text("arch", runtime.GOARCH),
		Packages: c.StringSlice("package"), Mirrors: c.StringSlice("mirror"),
		Folder: cmp.Or(os.Getenv("TMPDIR"), "/var/tmp"),
	}

	size, err := parseSize(c.String("size"))
	if err != nil {
		return o, err
	}
	o.Size = cmp.Or(size, defaultDisk)

	if file := c.String("packages"); file != "" {
		list, err := readFile(file)
		if err != nil {
			return o, exit.Usagef("cannot read the list of packages: %v", err).Try("check the file")
		}

		listed, err := build.ParsePackages(list)
		if err != nil {
			return o, inventory.Under(file, err)
		}
		o.Packages = append(o.Packages, listed...)
	}

	o.Agent, err = c.agentProgram()

	return o, err
}

// agentProgram returns the program for the image: the one that is named, or that is installed here; empty: none.
func (c *call) agentProgram() (string, error) {
	named := c.String("agent")

	switch {
	case c.Bool("no-agent") && named != "":
		return "", exit.Usagef("--agent and --no-agent exclude each other").Try("give one of them")
	case c.Bool("no-agent"):
		return "", nil
	case named != "":
		return filepath.Abs(named)
	}

	folders := []string{"/usr/local/bin", "/usr/bin"}
	if own, err := os.Executable(); err == nil {
		folders = append([]string{filepath.Dir(own)}, folders...)
	}

	for _, folder := range folders {
		file := filepath.Join(folder, "clusterm")
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file, nil
		}
	}

	return "", exit.Usagef("there is no program clusterm here that could be the agent").
		Try("name it by --agent FILE, or leave it out with --no-agent")
}

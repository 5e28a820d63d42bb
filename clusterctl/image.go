// SPDX-License-Identifier: Apache-2.0

package clusterctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/contiv/cluster/clusterctl/exit"
	"github.com/contiv/cluster/clusterctl/print"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/client"
)

var images = noun[api.Image]{
	columns: print.ImageColumns,
	name:    func(i api.Image) string { return i.Name },
	empty:   "there is no image",
	all:     every((*client.Client).Images),
	long: func(p *print.Printer, items []api.Image) {
		for _, i := range items {
			p.Image(i)
		}
	},
}

func imageRows() rows {
	offered := images.offer(func(i api.Image) candidate { return candidate{i.Name, i.Description} })

	return rows{
		"image list": images.list(leaf{}),
		"image show": {
			complete: offered, run: named((*client.Client).Image, (*print.Printer).Image, images.name),
		},
		"image add":        {complete: secondFile, run: addImage},
		"image build":      {local: true, complete: nothing, run: buildImage},
		"image verify":     {complete: offered, formats: namelessFormats, run: verifyImage},
		"image boot-files": {complete: imageThenFile(offered), formats: []string{}, run: bootFiles},
		"image remove":     {complete: offered, run: onEach((*client.Client).DeleteImage, "the image %s is removed")},
	}
}

// secondFile completes a new name, which nothing offers, and then a file.
func secondFile(_ context.Context, c *completer, current string) []candidate {
	if len(c.args) == 0 {
		return nil
	}
	return files(current)
}

// imageThenFile completes an image, and then a folder.
func imageThenFile(offered positional) positional {
	return func(ctx context.Context, c *completer, current string) []candidate {
		if len(c.args) == 0 {
			return offered(ctx, c, current)
		}
		return files(current)
	}
}

func addImage(ctx context.Context, c *call) error {
	minDisk, err := parseSize(c.String("min-disk"))
	if err != nil {
		return err
	}

	// Without the manager, nothing is read or fetched.
	if _, err := c.manager.Image(ctx, c.args[0]); err != nil && inventory.KindOf(err) != inventory.KindNotFound {
		return err
	}

	source, err := c.imageSource(ctx, c.args[1])
	if err != nil {
		return err
	}

	defer source.close()

	return c.addSource(ctx, source, shownSource(c.args[1]), api.ImageRequest{
		Name: c.args[0], Kind: source.kind,
		Arch: c.text("arch", cmp.Or(source.arch, "amd64")), Boot: c.text("boot", "both"),
		MinDisk: minDisk, Description: c.String("description"),
	})
}

// addSource completes the request with the files of a source, which messages show by a name, and sends them.
func (c *call) addSource(ctx context.Context, source imageSource, shown string, request api.ImageRequest) error {
	paths := map[string]string{}

	for _, f := range source.files {
		digest, size, err := c.digestOf(ctx, f.path)
		if err != nil {
			return err
		}

		request.Files = append(request.Files, api.ImageFileRequest{Role: f.role, Digest: digest, Size: size})
		paths[f.role] = f.path
	}

	if want := c.String("digest"); want != "" && (len(source.files) != 1 || request.Files[0].Digest != want) {
		source.forget()

		return exit.Errorf(exit.Failed, "%s has the digest %s, and not %s", shown,
			request.Files[0].Digest, want).
			Try("check where it comes from; nothing was added")
	}

	made, err := c.manager.CreateImage(ctx, request)
	if kind := inventory.KindOf(err); kind == inventory.KindInvalid || kind == inventory.KindRefused {
		source.forget() // the same command would be refused again
	}
	if err != nil {
		return err
	}

	for _, f := range made.Files {
		if arrived(f) {
			continue
		}

		if err := c.sendImage(ctx, made.Name, f, paths[f.Role]); err != nil {
			c.say("the same command goes on where this one stopped")
			return err
		}
	}

	source.forget()

	last, err := c.manager.Image(ctx, made.Name)
	if err == nil && last.State != api.ImageComplete {
		err = exit.Errorf(exit.Failed, "content of the image %s was removed again meanwhile", made.Name).
			Try("repeat the command")
	}

	return view(c, (*print.Printer).Image, images.name)(last, err)
}

const (
	// sendAttempts is how often a file is sent again without any progress.
	sendAttempts = 20
	sendPause    = 2 * time.Second
)

// sendImage sends the rest of a file, also after broken connections.
func (c *call) sendImage(ctx context.Context, name string, f api.ImageFile, path string) error {
	content, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer content.Close()

	for attempt, best := 0, int64(-1); ; attempt++ {
		if f.Received > best {
			attempt, best = 0, f.Received
		}
		if _, err := content.Seek(f.Received, io.SeekStart); err != nil {
			return unreadable(err)
		}

		done := c.progress("sending the "+f.Role, f.Received, f.Size)
		_, err := c.manager.SendImage(ctx, name, f.Role, f.Received, counted{content, done})
		done.end()

		again := slices.Contains([]inventory.Kind{
			inventory.KindUnavailable, inventory.KindPrecondition, inventory.KindConflict,
		}, inventory.KindOf(err))
		if err == nil || !again || attempt == sendAttempts || ctx.Err() != nil {
			return err
		}

		select {
		case <-time.After(sendPause):
		case <-ctx.Done():
			return ctx.Err()
		}

		// What has come decides where to go on.
		now, err := c.manager.Image(ctx, name)
		if err != nil {
			return err
		}

		i := slices.IndexFunc(now.Files, func(g api.ImageFile) bool { return g.Role == f.Role })
		if i < 0 || now.Files[i].Digest != f.Digest {
			return exit.Errorf(exit.Failed, "the image %s was replaced meanwhile", name).
				Try("look at it, and add it again")
		}
		if f = now.Files[i]; arrived(f) {
			return nil
		}
	}
}

// arrived reports whether the instance that answered has the content of a file. That another one has it does not
// suffice: this one may have lost its copy.
func arrived(f api.ImageFile) bool { return len(f.Instances) > 0 && f.Received == f.Size }

func verifyImage(ctx context.Context, c *call) error {
	check, err := c.manager.VerifyImage(ctx, c.args[0])
	if err := view(c, (*print.Printer).ImageCheck)(check, err); err != nil {
		return err
	}

	bad := slices.ContainsFunc(check.Files, func(f api.ImageFileCheck) bool { return f.Result != api.ImageOK })
	if !bad {
		return nil
	}

	// The command has to describe the same image.
	options := ""
	if i, err := c.manager.Image(ctx, check.Image); err == nil {
		options = fmt.Sprintf(" --arch %s --boot %s", i.Arch, i.Boot)
	}

	return exit.Errorf(exit.Failed, "not all content of %s is on %s as it should be", check.Image, check.Node).
		Try("to send what is damaged or missing again: %s image add %s FILE%s", c.self(), check.Image, options)
}

// sizeUnits are the suffixes of sizes.
const sizeUnits = "KMGT"

// parseSize returns the bytes of a size such as 20G; none: 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}

	digits, factor := strings.TrimSuffix(text, "iB"), int64(1)
	if n := len(digits); n > 0 {
		if unit := strings.IndexByte(sizeUnits, digits[n-1]); unit >= 0 {
			digits, factor = digits[:n-1], 1<<(10*(unit+1))
		}
	}

	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 1 || n > math.MaxInt64/factor {
		return 0, exit.Usagef("%q is no size", text).Try("write bytes, or a number with K, M, G or T, such as 20G")
	}

	return n * factor, nil
}

func unreadable(err error) error {
	return exit.Errorf(exit.Failed, "cannot read the content: %v", err).Try("check the file")
}

// progress shows how far bytes have come: in place at a terminal, else by a line now and then.
type progress struct {
	c         *call
	what      string
	has, all  int64 // all 0: unknown
	step, due int64 // between lines, and of the next one
	shown     time.Time
	inPlace   bool
	everShown bool
}

func (c *call) progress(what string, has, all int64) *progress {
	p := &progress{
		c: c, what: what, has: has, all: all, step: max(shownEvery, all/10), inPlace: c.errTTY, shown: time.Now(),
	}
	if all == 0 {
		p.step = 1 << 30
	}
	p.due = has + p.step

	return p
}

func (p *progress) add(n int) {
	p.has += int64(n)

	switch {
	case p.inPlace && time.Since(p.shown) >= 200*time.Millisecond:
		p.shown, p.everShown = time.Now(), true
		p.c.sayInPlace(p.text())
	case !p.inPlace && p.has >= p.due:
		p.due = p.has + p.step
		p.c.say("%s", p.text())
	}
}

func (p *progress) text() string {
	if p.all == 0 {
		return p.what + ": " + print.Size(p.has)
	}
	return p.what + ": " + print.Size(p.has) + " of " + print.Size(p.all) + ", " +
		strconv.FormatInt(100*p.has/p.all, 10) + " %"
}

// end leaves the last line on the terminal.
func (p *progress) end() {
	if p.everShown {
		p.c.sayInPlace(p.text() + "\n")
	}
}

// counted is a reader that shows its progress.
type counted struct {
	io.Reader

	done *progress
}

// Read implements io.Reader.
func (r counted) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.done.add(n)

	if err != nil && !errors.Is(err, io.EOF) {
		err = unreadable(err)
	}

	return n, err
}

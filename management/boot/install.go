// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/image/installer"
	"github.com/contiv/cluster/configuration/image/installer/report"
	"github.com/contiv/cluster/configuration/image/netboot"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/record"
	"github.com/contiv/cluster/management/state"
)

// Disks has the images that are written to disks. All methods may be called at once.
type Disks interface {
	// Disk returns the file of an image, or why it cannot be written to a disk of a machine of the architecture by this
	// instance.
	Disk(r record.Reader, image, arch string) (api.ImageFile, error)
	// OpenDisk opens the content of an image.
	OpenDisk(r record.Reader, image string) (*os.File, error)
}

// Install is what is written to the disk of a machine.
type Install struct {
	Image string         `json:"image"`
	Root  map[string]any `json:"root_device,omitempty"` // the hints for the disk

	config string // see Configure
}

const (
	secretConfig = "cloud_config" //nolint:gosec // it is the name of one

	// fileImage and calledHome are the ends of paths of the HTTP service.
	fileImage  = "image"
	calledHome = "running"

	// maxCall bounds what an installed system says, in bytes.
	maxCall = 64 << 10
	// maxHostKeys bounds its ssh host keys.
	maxHostKeys = 4
)

// merged are the lists of cloud-init that have the entries of the site after those of the manager.
var merged = []string{"users", "ssh_authorized_keys", "write_files", "bootcmd", "runcmd", "packages"}

// Configure returns the installation with the configuration of its first start, in the form of cloud-init
// (cloud-config): a user with the public key of the manager, and then what the site says. Of a list, the entries of
// both count; of other keys, that of the site.
func (i Install) Configure(user, key string, site map[string]any) (Install, error) {
	if _, set := site["phone_home"]; set {
		return i, invalid(
			"the variable cloud_config sets phone_home, by which the manager learns that the system runs",
		).
			Do("remove it there")
	}

	account := map[string]any{"name": user, "ssh_authorized_keys": []any{key}, "lock_passwd": true}
	config := map[string]any{"ssh_deletekeys": true, "users": []any{account}}

	if user == "root" {
		config["disable_root"] = false
	} else {
		account["sudo"], account["shell"] = "ALL=(ALL) NOPASSWD:ALL", "/bin/bash"
	}

	for _, name := range slices.Sorted(maps.Keys(site)) {
		value := site[name]

		if slices.Contains(merged, name) {
			list, ok := value.([]any)
			if !ok {
				return i, invalid(
					"%s in the variable cloud_config is no list",
					name,
				).Do("write it as cloud-init has it")
			}

			own, _ := config[name].([]any)
			value = append(own, list...)
		}

		config[name] = value
	}

	text, err := json.Marshal(config)
	i.config = string(text)

	return i, err
}

// Installs returns why an image cannot be installed on a machine by this instance, or nil.
func (s *Service) Installs(r record.Reader, node, image string) error {
	_, err := s.Disks.Disk(r, image, archOf(r, node))
	return err
}

// StageOf returns how far a job has come with the installation of a machine; "": nothing was written.
func StageOf(r record.Reader, node, job string) (stage string) {
	b := record.Get(r, &BootsKind, node)
	if b == nil {
		return ""
	}

	for _, one := range b.All {
		if one.Job == job {
			stage = cmp.Or(one.Stage, stage)
		}
	}

	return stage
}

func isInstalled(stage string) bool { return stage == api.BootInstalled || stage == api.BootRunning }

// failedText is the event of a failed installation.
const failedText = "the image is not installed"

// takeInstall takes what a machine says that is being installed. It returns what the machine does next, and the report
// in words.
func (b *Boots) takeInstall(boot *api.Boot, m report.Message) (then string, events []string, err error) {
	switch {
	case m.Stage == report.Installed && isInstalled(boot.Stage):
		return b.Then, nil, nil // the answer was lost
	case m.Stage == report.Failed && b.Problem != "":
		return report.Wait, nil, nil
	case boot.Ended != nil, isInstalled(boot.Stage), b.Problem != "":
		return "", nil, errEnded(b.Node)
	}

	events, then = eventsOf(m), report.Continue

	switch m.Stage {
	case report.Writing, report.Installed:
		boot.Stage, boot.Disk = api.BootWriting, inventory.Shorten(oneLine(m.Disk), maxShown)
		boot.Written, boot.Size = max(m.Written, 0), max(m.Total, 0)
		events = []string{fmt.Sprintf("writes the image to %s: %d %%", boot.Disk, percent(boot.Written, boot.Size))}

		if m.Stage == report.Installed {
			boot.Stage, then = api.BootInstalled, b.Then
			events = []string{"the image is on " + boot.Disk + ", and the machine restarts"}
		}
	case report.Failed:
		b.Problem, then = inventory.Shorten(cmp.Or(oneLine(m.Message), failedText), maxEvent), report.Wait
		events = append(events, failedText)
	}

	return then, events, nil
}

// percent returns how much of a whole is done, in steps of 10.
func percent(done, of int64) int64 {
	if of <= 0 {
		return 0
	}
	return min(10*(done/max(of/10, 1)), 100)
}

// install is what the machine writes to its disk.
func (w web) install(
	records record.Reader, b *Boots, order installer.Order, at netip.AddrPort,
) (*installer.Install, error) {
	f, err := w.Disks.Disk(records, b.Install.Image, archOf(records, b.Node))
	if err != nil {
		return nil, err
	}

	base := (&url.URL{Scheme: "http", Host: at.String()}).JoinPath(netboot.PathBoot, b.Node)

	seed, err := b.seed(order.Interface, base.JoinPath(b.token(), calledHome).String())
	if err != nil {
		return nil, err
	}

	return &installer.Install{
		Image: installer.Image{
			URL: base.JoinPath(fileImage).String(), Digest: f.Digest, Size: f.Size,
			Compression: f.Compression, Virtual: f.VirtualSize,
		},
		RootDevice: b.Install.Root, Seed: seed,
	}, nil
}

// noHostName are the characters that a host name does not have.
var noHostName = regexp.MustCompile(`[^A-Za-z0-9-]+`)

// port is the name of the network port in the installed system. The system gives it to the port with the MAC, because
// not all of those that cloud-init knows can configure a port by its MAC alone.
const port = "boot0"

// seed is the configuration of the first start. The system calls home once it is configured.
func (b *Boots) seed(i installer.Interface, home string) (seed installer.Seed, err error) {
	text, err := b.reveal(secretConfig)
	if err != nil {
		return seed, err
	}

	var config map[string]any
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return seed, fmt.Errorf("the configuration of its first start is damaged: %w", err)
	}

	config["phone_home"] = map[string]any{
		"url": home, "post": []string{"pub_key_ed25519", "pub_key_ecdsa", "pub_key_rsa"}, "tries": 20,
	}

	ethernet := map[string]any{
		"match": map[string]any{"macaddress": i.MAC}, "set-name": port, "addresses": []string{i.Address.String()},
	}
	if i.Gateway.IsValid() {
		ethernet["gateway4"] = i.Gateway.String()
	}
	if len(i.DNS) > 0 {
		ethernet["nameservers"] = map[string]any{"addresses": i.DNS}
	}

	last := b.All[len(b.All)-1]
	name := strings.Trim(noHostName.ReplaceAllString(b.Node, "-"), "-")

	for _, part := range []struct {
		to     *string
		head   string
		values any
	}{
		// Every installation is a new instance: cloud-init carries out all of it.
		{&seed.MetaData, "", map[string]any{
			"instance-id":    fmt.Sprintf("clusterm-%s-%d", last.Job, last.Begun.UnixNano()),
			"local-hostname": inventory.Shorten(name, maxHostName),
		}},
		{&seed.UserData, "#cloud-config\n", config},
		{&seed.NetworkConfig, "", map[string]any{"version": 2, "ethernets": map[string]any{port: ethernet}}},
	} {
		text, err := json.Marshal(part.values)
		if err != nil {
			return seed, err
		}
		*part.to = part.head + string(text) + "\n"
	}

	return seed, nil
}

// maxHostName is the length of a host name.
const maxHostName = 63

// reveal returns a secret of the last boot.
func (b *Boots) reveal(name string) (string, error) {
	value := b.Secrets[name]
	if hidden, ok := value.(configuration.Secret); ok {
		var err error
		if value, err = hidden.Reveal(); err != nil {
			return "", err
		}
	}
	text, _ := value.(string)

	return text, nil
}

// image gives the image to the machine that has the token.
func (w web) image(out http.ResponseWriter, r *http.Request) {
	node := r.PathValue("node")
	records, _ := w.Store.Latest()
	b := record.Get(records, &BootsKind, node)

	if !b.Serves() || b.Install == nil || !b.Has(bearer(r)) {
		http.Error(out, "no installation with this token is open", http.StatusGone)
		return
	}

	if err := w.sendImage(out, records, b.Install.Image); err != nil {
		w.happened(node, FromHTTP, "asked for the image: "+err.Error())
		return
	}
	w.happened(node, FromHTTP, "fetched the image")
}

func (w web) sendImage(out http.ResponseWriter, records record.Reader, image string) error {
	f, err := w.Disks.OpenDisk(records, image)
	if err != nil {
		http.Error(out, err.Error(), http.StatusServiceUnavailable)
		return err
	}
	defer f.Close()

	return sendAfter(out, nil, f)
}

func bearer(r *http.Request) string {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), "Bearer ")
	return token
}

// takeCall takes the call of an installed system, in the form of cloud-init's phone_home. A call that comes again is
// answered alike.
func (w web) takeCall(out http.ResponseWriter, r *http.Request) {
	node, token := r.PathValue("node"), r.PathValue("token")
	records, _ := w.Store.Latest()

	if b := record.Get(records, &BootsKind, node); !b.Has(token) {
		http.Error(out, "no installation with this token is open", http.StatusGone)
		return
	}

	_ = http.NewResponseController(out).SetReadDeadline(time.Now().Add(chunkTime))
	r.Body = http.MaxBytesReader(out, r.Body, maxCall)

	if err := r.ParseForm(); err != nil {
		http.Error(out, "this is no form", http.StatusBadRequest)
		return
	}

	given := w.given(r, records, node)
	if given == nil {
		http.Error(out, "the machine has no address any more", http.StatusGone)
		return
	}

	_, _, err := record.Decide(r.Context(), w.Store, func(tx *record.Tx) (any, error) {
		return nil, runs(tx, node, token, given.Addr, hostKeysOf(r.PostForm))
	})

	switch {
	case err == nil:
		fmt.Fprintln(out, "ok")
	case inventory.KindOf(err) == inventory.KindRefused:
		http.Error(out, err.Error(), http.StatusGone)
	default:
		w.Logger.WithField("node", node).WithError(err).Warn("the call of an installed system is lost")
		http.Error(out, "the manager cannot take the call now", http.StatusServiceUnavailable)
	}
}

// hostKeysOf returns the ssh host keys that a system says.
func hostKeysOf(form url.Values) (keys []string) {
	for _, name := range slices.Sorted(maps.Keys(form)) {
		for _, text := range form[name] {
			if !strings.HasPrefix(name, "pub_key_") || len(keys) == maxHostKeys {
				continue
			}
			if key, err := configuration.ParseHostKey(strings.TrimSpace(text)); err == nil {
				keys = append(keys, key)
			}
		}
	}

	return keys
}

// runs records that the installed system of a machine runs, where it is, and by which ssh host keys it is known.
func runs(tx *record.Tx, node, token, addr string, keys []string) error {
	b := record.Get(tx, &BootsKind, node)
	if !b.Has(token) || b.Install == nil {
		return errEnded(node)
	}

	next, boot := b.last()

	switch {
	case boot.Stage == api.BootRunning:
		return nil
	case boot.Ended != nil || boot.Stage != api.BootInstalled:
		return errEnded(node)
	}

	n, known := state.ViewOf(tx).Lookup(node)
	if !known || n.Job != boot.Job {
		return errEnded(node)
	}

	now := time.Now().UTC()
	said := "the system runs, and has called"
	taken := state.ViewOf(tx).HostKeys()
	at := slices.IndexFunc(keys, func(key string) bool { return taken[key] != "" && taken[key] != node })

	switch {
	case len(keys) == 0:
		next.Problem = "the system runs, and tells no ssh host key: see /var/log/cloud-init.log there"
	case at >= 0:
		next.Problem = "the image has ssh host keys in it: " +
			configuration.ErrTaken(node, configuration.Fingerprint(keys[at]), taken).Error()
	default:
		m, entry := n.Note(inventory.VerbInstall, inventory.Trigger{
			Actor: principal, Job: boot.Job, Reason: "runs the image " + boot.Installs, Time: now,
		})
		m.Addr, m.HostKeys = addr, keys
		m.Installed = &inventory.Installed{Image: boot.Installs, Job: boot.Job, Since: now}
		tx.Attach(state.NodeWrite{Node: m, Entries: []inventory.HistoryEntry{entry}})

		boot.Stage = api.BootRunning
	}

	note(boot, api.BootEvent{At: now, From: FromHTTP, Text: cmp.Or(next.Problem, said)})
	record.Put(tx, &BootsKind, next)

	return nil
}

// SPDX-License-Identifier: Apache-2.0

// Package keyring keeps the keys of the secret variables: the file with the keys, their rotation, and the encryption of
// what is stored in the clear or with a former key. It also reads the secrets that come from outside.
package keyring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/contiv/cluster/configuration"
	"github.com/contiv/cluster/configuration/repository"
	outside "github.com/contiv/cluster/configuration/source"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/inventory/localfile"
	"github.com/contiv/cluster/management/access"
	"github.com/contiv/cluster/management/api"
	"github.com/contiv/cluster/management/control"
	store "github.com/contiv/cluster/management/etcd"
	"github.com/contiv/cluster/management/secret"
	"github.com/contiv/cluster/management/state"
)

// FileName is the name of the key file in the data directory, and of the systemd
// credential.
const FileName = "secrets.key"

// maxKeyFile bounds a key file, in bytes.
const maxKeyFile = 16 << 10

// rotateTimeout bounds a rotation. It may be continued after that.
const rotateTimeout = 10 * time.Minute

// retryEncrypt is the longest time before stored secrets are looked at again.
const retryEncrypt = time.Minute

// keyFile is the file with the keys of the secrets.
type keyFile struct {
	path     string
	readOnly bool // a systemd credential: the daemon must not write it
}

// findKeyFile returns the configured file, or the credential, or that of the data
// directory.
func findKeyFile(configured, dataDir string) keyFile {
	credentials := os.Getenv("CREDENTIALS_DIRECTORY")

	path := configured
	if path == "" && credentials != "" {
		given := filepath.Join(credentials, FileName)

		//nolint:gosec // systemd sets the variable
		if _, err := os.Lstat(given); err == nil {
			path = given
		}
	}

	if path == "" {
		path = filepath.Join(dataDir, FileName)
	}

	isCredential := credentials != "" && strings.HasPrefix(path, filepath.Clean(credentials)+"/")

	return keyFile{path, isCredential}
}

// read returns the keys; fs.ErrNotExist without a file.
func (f keyFile) read() (secret.Ring, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return secret.Ring{}, err
	}
	defer file.Close()

	info, err := file.Stat()

	switch {
	case err != nil:
		return secret.Ring{}, err
	case !info.Mode().IsRegular():
		return secret.Ring{}, fmt.Errorf("%s is not a file", f.path)
	case info.Mode().Perm()&0o077 != 0 && !f.readOnly:
		return secret.Ring{}, inventory.Errorf(inventory.KindRefused, "others can read the key file %s (mode %04o)",
			f.path, info.Mode().Perm()).Do("chmod 600 %s, then restart clusterm", f.path)
	}

	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err != nil {
		return secret.Ring{}, err
	}
	ring, err := secret.Parse(content)
	if err != nil {
		return secret.Ring{}, inventory.Errorf(inventory.KindRefused, "the key file %s is damaged: %w", f.path, err).
			Do("restore it from its backup, then restart clusterm")
	}

	return ring, nil
}

// write replaces the file by one that read accepts.
func (f keyFile) write(ring secret.Ring) error {
	content := ring.Encode()
	if _, err := secret.Parse(content); err != nil {
		return err
	}
	return localfile.Replace(f.path, content)
}

// setAside renames a file that is not usable now: a backup may explain it later.
func (f keyFile) setAside() error {
	kept := f.path + "." + time.Now().UTC().Format("20060102T150405Z")
	if err := localfile.Rename(f.path, kept); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Keyring keeps the key of the secrets, and reads secrets from outside.
type Keyring struct {
	*control.Loop
	file   keyFile
	node   string
	leads  func() bool
	config func() Config
	audit  access.Auditor
	log    logrus.FieldLogger

	stored *store.Store

	rotating chan struct{} // full during a rotation, and during the encryption of stored secrets
}

// Config is the part of the configuration that may change while the daemon runs.
type Config struct {
	Patterns configuration.Secrets                 // of the names of secret variables
	Sources  map[string]configuration.SecretSource // of secret variables that are not stored, by name
}

// Open reads the configured key file, or that of the data directory. Without a usable key the daemon starts all the
// same: only the secrets are locked.
func Open(keyFile, dataDir string, log logrus.FieldLogger) (*Keyring, *store.Secrets) {
	s := &Keyring{file: findKeyFile(keyFile, dataDir), log: log, rotating: make(chan struct{}, 1)}
	s.Loop = s.newLoop()

	ring, err := s.file.read()
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return s, store.NewSecrets(ring, err)
}

// Content returns the keys as the text of a key file, for another instance.
func (s *Keyring) Content() ([]byte, error) {
	ring, err := s.file.read()
	return ring.Encode(), err
}

// Settle compares the key with the one that the store names. The first start makes
// both. It is called before all other methods.
// node is that of this instance, and leads reports whether it encrypts what is stored.
func (s *Keyring) Settle(
	ctx context.Context, stored *store.Store, node string, leads func() bool, config func() Config, a access.Auditor,
) {
	s.stored, s.node, s.leads, s.config, s.audit = stored, node, leads, config, a
	stored.Secrets().UsePatterns(func() configuration.Secrets { return config().Patterns })

	at := s.stored.Secrets()
	if at.Problem() != nil {
		s.log.WithError(at.Problem()).Error("secret variables are locked")
		return
	}

	ring, err := s.settle(ctx, at.Ring())
	if err != nil {
		s.log.WithError(err).Error("secret variables are locked")
	}
	at.Use(ring, err)

	// Without a key, only the comparison of variables is missing. It is tried again.
	if err == nil {
		if err := s.stored.EnsureChecksumKey(ctx); err != nil {
			s.log.WithError(err).Warn("the key of the checksums of variables could not be made")
		}
	}
}

// settle returns the keys to use, and why they cannot encrypt.
func (s *Keyring) settle(ctx context.Context, ring secret.Ring) (secret.Ring, error) {
	named, _, err := s.stored.SecretsKey(ctx)

	switch {
	case err != nil:
		return ring, fmt.Errorf("the key of the secrets could not be compared with the store: %w", err)
	case named != "" && !ring.Has(named):
		return ring, s.errMissing(ring, named)
	case named != "" && named == ring.Active():
		return ring, nil
	case ring.Active() == "":
		ring = secret.NewRing(secret.NewKey())
		if err := s.file.write(ring); err != nil {
			return secret.Ring{}, inventory.Errorf(inventory.KindUnavailable,
				"the key file of the secrets cannot be written: %w", err).
				Do("correct secrets.key_file in the configuration file, and restart clusterm")
		}
	}

	// Another first line in the file is a rotation, begun by this daemon or by hand.
	if named != "" {
		if err := state.CheckAlone(s.stored.View(), s.node); err != nil {
			return ring, fmt.Errorf("the key file %s begins with another key than that of the store: %w",
				s.file.path, err)
		}
	}

	err = s.stored.NoteSecretsKey(ctx, named, ring.Active(), named != "" && !s.file.readOnly)
	if err != nil {
		return ring, fmt.Errorf("the key of the secrets could not be noted in the store: %w", err)
	}

	return ring, nil
}

// errMissing returns the error for a store without its key here.
func (s *Keyring) errMissing(ring secret.Ring, named string) error {
	problem := "does not exist"
	if ring.Active() != "" {
		problem = "has other keys: " + strings.Join(ring.IDs(), ", ")
	}

	return inventory.Errorf(inventory.KindRefused,
		"secret variables are locked: they are encrypted with key %s, and the key file %s %s", named, s.file.path,
		problem).
		Do("restore the key file from its backup or from the other instance, and restart clusterm; or, if the key is " +
			"lost, run clusterctl key rotate secrets --abandon, and set the secret variables anew")
}

// newLoop returns the leader's loop that encrypts what is stored in the clear or with a former key,
// at the start and after each change of the patterns or marks of secret names, and continues a
// rotation. A change that another instance has made is found within a minute.
func (s *Keyring) newLoop() *control.Loop {
	return control.New(control.Options{
		Name: "encryption of secrets", Duty: func() bool { return s.leads() }, Every: retryEncrypt,
		Backoff: retryEncrypt, Logger: s.log,
		Trouble: "stored secrets could not be encrypted; retrying",
		Round: func(ctx context.Context) (control.Next, error) {
			if s.stored.Secrets().Problem() != nil {
				return control.Next{}, nil
			}

			written, err := s.finish(ctx)
			if written > 0 {
				s.log.WithField("records", written).Info("stored secrets were encrypted")
			}

			return control.Next{}, err
		},
	})
}

// finish encrypts all stored secrets with the first key, and then ends a rotation. It
// may be interrupted at any point and called again.
func (s *Keyring) finish(ctx context.Context) (written int, err error) {
	if err := s.lock(ctx); err != nil {
		return 0, err
	}

	defer s.unlock()
	return s.finishLocked(ctx)
}

// lock waits until no rotation is under way.
func (s *Keyring) lock(ctx context.Context) error {
	select {
	case s.rotating <- struct{}{}:
		return nil
	case <-ctx.Done():
		return inventory.Errorf(inventory.KindUnavailable, "another rotation of the key is under way: %w", ctx.Err()).
			Do("see clusterctl key status secrets")
	}
}

func (s *Keyring) unlock() { <-s.rotating }

func (s *Keyring) finishLocked(ctx context.Context) (written int, err error) {
	if err := s.stored.EnsureChecksumKey(ctx); err != nil {
		return 0, err
	}

	written, err = s.stored.EncryptOnce(ctx)
	if err != nil {
		return written, err
	}

	named, rotating, err := s.stored.SecretsKey(ctx)
	if err != nil || !rotating {
		return written, err
	}

	// A former key is removed only when nothing needs it.
	at := s.stored.Secrets()
	ring := at.Ring()

	found, err := s.stored.CountSecrets(ctx)
	if err != nil {
		return written, err
	}
	if err := needsFormer(ring, found); err != nil {
		return written, err
	}

	if err := s.file.write(ring.OnlyActive()); err != nil {
		return written, fmt.Errorf("the former keys could not be removed from %s: %w", s.file.path, err)
	}

	at.Use(ring.OnlyActive(), nil)

	return written, s.stored.NoteSecretsKey(ctx, named, ring.Active(), false)
}

// needsFormer returns the error for stored secrets that need a former key of the ring, or
// may need it.
func needsFormer(ring secret.Ring, found store.StoredSecrets) error {
	for _, id := range ring.IDs()[1:] {
		if found.Boxes[id] > 0 {
			return fmt.Errorf("%d secrets are still encrypted with key %s", found.Boxes[id], id)
		}
	}

	if len(found.Damaged) == 0 || len(ring.IDs()) == 1 {
		return nil
	}

	return inventory.Errorf(inventory.KindUnavailable, "%d records that may need it cannot be decoded: %s",
		len(found.Damaged), nameSome(found.Damaged)).
		Do("restore the data directory from a backup, or remove each of them with clusterm store remove KEY; then " +
			"repeat the rotation")
}

// maxNamed is the number of damaged records that an error names.
const maxNamed = 10

// nameSome returns the first names of a list.
func nameSome(names []string) string {
	if len(names) > maxNamed {
		names = append(slices.Clone(names[:maxNamed]), "and others")
	}
	return strings.Join(names, ", ")
}

// Rotate makes a new key, encrypts every secret with it, and removes the former keys.
// At every moment the key file opens everything in the store, so it may be interrupted;
// the next start or call continues it. abandon begins with a new key although the one
// of the store is missing: what it has encrypted stays locked.
func (s *Keyring) Rotate(ctx context.Context, c access.Caller, abandon bool) (api.Secrets, error) {
	record := access.Record{Action: "secrets.rotate"}
	if abandon {
		record.Reason = "the former key is abandoned"
	}

	err := access.Audited(ctx, s.audit, c, record, func(_ context.Context, _ *access.Record) error {
		// A client that gives up must not leave two keys behind.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rotateTimeout)
		defer cancel()
		return s.rotate(ctx, abandon)
	})
	if err != nil {
		return api.Secrets{}, err
	}

	return s.Status(ctx)
}

func (s *Keyring) rotate(ctx context.Context, abandon bool) error {
	if err := s.lock(ctx); err != nil {
		return err
	}

	defer s.unlock()

	if err := state.CheckAlone(s.stored.View(), s.node); err != nil {
		return err
	}

	at := s.stored.Secrets()

	switch problem := at.Problem(); {
	case problem != nil && !abandon:
		return problem
	case problem == nil && abandon:
		return inventory.Errorf(inventory.KindRefused, "the key of the secrets is there, so it is not abandoned").
			Do("rotate it: clusterctl key rotate secrets")
	}

	if s.file.readOnly {
		return inventory.Errorf(inventory.KindRefused,
			"the key is a systemd credential (%s), which clusterm cannot write", s.file.path).
			Do("put a new key into its first line (head -c 32 /dev/urandom | base64), keep the others, and restart " +
				"clusterm; remove them once clusterctl key status secrets counts no secret of them")
	}

	named, rotating, err := s.stored.SecretsKey(ctx)
	if err != nil {
		return err
	}

	// An interrupted rotation is continued, not repeated.
	if !rotating || at.Problem() != nil {
		if err := s.begin(ctx, named); err != nil {
			return err
		}
	}

	if _, err := s.finishLocked(ctx); err != nil {
		return errUnfinished(err)
	}

	return nil
}

// errUnfinished returns the error for a rotation that has made its key.
func errUnfinished(err error) error {
	unfinished := inventory.Errorf(inventory.KindUnavailable,
		"the rotation has begun and is not complete, so the former key is kept: %w", err).
		Do("repeat it; a restart of clusterm continues it as well")

	if e, ok := errors.AsType[*inventory.Error](err); ok && e.Remedy != "" {
		unfinished.Message = "the rotation has begun and is not complete, so the former key is kept: " + e.Message
		unfinished.Remedy = e.Remedy
	}

	return unfinished
}

// begin makes a new key the one that encrypts. named is that of the store.
func (s *Keyring) begin(ctx context.Context, named string) error {
	at := s.stored.Secrets()
	if at.Problem() != nil {
		if err := s.file.setAside(); err != nil {
			return inventory.Errorf(inventory.KindUnavailable, "the former key file cannot be kept: %w", err).
				Do("correct the cause, and repeat the rotation")
		}
	}

	// A key that the store does not name yet is that of a rotation it did not accept.
	ring := at.Ring()
	if at.Problem() != nil || ring.Active() == named {
		ring = ring.With(secret.NewKey())
	}

	// First the file: a crash from here on leaves both keys in it.
	if err := s.file.write(ring); err != nil {
		return inventory.Errorf(inventory.KindUnavailable, "the new key cannot be written: %w", err).
			Do("correct the cause, and repeat the rotation")
	}

	at.Use(ring, nil)

	if err := s.stored.NoteSecretsKey(ctx, named, ring.Active(), true); err != nil {
		return errUnfinished(err)
	}

	return nil
}

// Status returns the state of the stored secrets. It reads all records that may have
// some.
func (s *Keyring) Status(ctx context.Context) (api.Secrets, error) {
	found, err := s.stored.CountSecrets(ctx)
	if err != nil {
		return api.Secrets{}, err
	}

	_, rotating, err := s.stored.SecretsKey(ctx)
	if err != nil {
		return api.Secrets{}, err
	}

	at := s.stored.Secrets()
	ring := at.Ring()

	out := api.Secrets{
		KeyFile: s.file.path, Key: ring.Active(), Rotating: rotating, Plain: found.Plain, Locked: found.Unreadable,
		Keys: []api.SecretKey{}, Sources: []string{},
	}

	for _, id := range ring.IDs() {
		out.Keys = append(out.Keys, api.SecretKey{ID: id, Secrets: found.Boxes[id]})
	}

	if problem := at.Problem(); problem != nil {
		out.Problem = problem.Error()
	}

	for name := range s.config().Sources {
		out.Sources = append(out.Sources, name)
	}

	slices.Sort(out.Sources)

	return out, nil
}

// Secret returns the value of a secret variable from outside.
func (s *Keyring) Secret(ctx context.Context, name string) (string, error) {
	from, ok := s.config().Sources[name]
	if !ok {
		return "", inventory.Errorf(inventory.KindRefused, "its source is no longer configured").
			Do("add it to secrets.sources in the configuration file, or set the variable, and submit a new job")
	}

	// Whoever can change the program or the file has the rights of the manager.
	path, err := repository.CheckOwnedFile(from.Path())
	if err != nil {
		return "", err
	}
	if from.File != "" {
		return outside.File(path)
	}

	return outside.Command(ctx, path, from.Command[1:]...)
}

// SPDX-License-Identifier: Apache-2.0

package image

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/contiv/cluster/configuration/image"
	"github.com/contiv/cluster/inventory"
	"github.com/contiv/cluster/management/api"
)

const (
	// MaxImages is the number of images.
	MaxImages = 200
	// maxMinDisk bounds what is asked of a disk, in bytes.
	maxMinDisk     = 1 << 50
	maxDescription = 200 // characters
	maxShown       = 60  // bytes of a text in an error
)

// The roles of files, other than templates.
const (
	RoleImage   = "image"
	RoleKernel  = "kernel"
	RoleInitrd  = "initrd"
	RolePackage = "package"
)

// templates are the roles of templates, each of the installer that reads it.
var templates = []string{"kickstart", "preseed", "autoinstall"}

// Roles lists every role.
var Roles = slices.Concat([]string{RoleImage, RoleKernel, RoleInitrd, RolePackage}, templates)

// maxSize bounds the content of a role, in bytes.
func maxSize(role string) int64 {
	switch role {
	case RoleImage:
		return 1 << 40
	case RoleKernel, RoleInitrd, RolePackage:
		return 4 << 30
	default:
		return 1 << 20
	}
}

var kinds = []api.ImageKind{api.ImageDisk, api.ImageRootFS, api.ImageInstaller, api.ImageKernel}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,59}$`)

func invalid(format string, args ...any) *inventory.Error {
	return inventory.Errorf(inventory.KindInvalid, format, args...)
}

// check refuses a request that describes no image.
func check(r api.ImageRequest) error {
	short := func(text string) string { return inventory.Shorten(text, maxShown) }

	switch {
	case !nameForm.MatchString(r.Name):
		return invalid("%q cannot be the name of an image", short(r.Name)).
			Do("use lower-case letters, digits, dots and dashes, and 60 characters at most")
	case !slices.Contains(kinds, r.Kind):
		return invalid("%q is no kind of image", short(string(r.Kind))).Do("use disk, rootfs, installer or kernel")
	case !slices.Contains([]string{"amd64", "arm64"}, r.Arch):
		return invalid("%q is no architecture of an image", short(r.Arch)).Do("use amd64 or arm64")
	case !slices.Contains([]string{"bios", "uefi", "both"}, r.Boot):
		return invalid("%q is no boot mode of an image", short(r.Boot)).Do("use bios, uefi or both")
	case r.MinDisk < 0 || r.MinDisk > maxMinDisk:
		return invalid("a disk of %d bytes cannot be required", r.MinDisk).Do("use 0 to %d", int64(maxMinDisk))
	case utf8.RuneCountInString(r.Description) > maxDescription || strings.ContainsFunc(r.Description, isControl):
		return invalid("the description is no line of at most %d characters", maxDescription).Do("shorten it")
	}

	return checkFiles(r)
}

func isControl(c rune) bool { return c < ' ' || c == 0x7f }

// checkFiles refuses files that do not make up an image of its kind.
func checkFiles(r api.ImageRequest) error {
	count := map[string]int{}

	for _, f := range r.Files {
		role := f.Role
		if slices.Contains(templates, role) {
			role = "template"
		}
		count[role]++

		switch {
		case !image.IsDigest(f.Digest):
			return invalid("%q is not the digest of a file", inventory.Shorten(f.Digest, maxShown)).
				Do("write sha256: and 64 hexadecimal digits in lower case, as sha256sum prints them")
		case f.Size < 1 || f.Size > maxSize(f.Role):
			return invalid("the file for %s cannot have %d bytes", inventory.Shorten(f.Role, maxShown), f.Size).
				Do("use 1 to %d", maxSize(f.Role))
		}
	}

	complete := count[RoleImage] == 1 && len(r.Files) == 1
	remedy := "give one file, of the role image"

	switch r.Kind {
	case api.ImageInstaller:
		complete = count[RoleKernel] == 1 && count[RoleInitrd] == 1 && count["template"] == 1 && len(r.Files) == 3
		remedy = "give a kernel, an initrd, and one of " + strings.Join(templates, ", ")
	case api.ImageKernel:
		complete = count[RolePackage] == 1 && len(r.Files) == 1
		remedy = "give one file, of the role package"
	}

	if !complete {
		return invalid("these files are no image of the kind %s", r.Kind).Do("%s", remedy)
	}

	return nil
}

// isDetected reports whether the content for a role has to be something. Any other content is taken as it is.
func isDetected(role string) bool { return role == RoleImage || role == RolePackage }

// fits refuses content for a role in an image of the kind that is something else.
func fits(kind api.ImageKind, arch, role string, found image.Found) error {
	isDisk := found.Format == image.Raw || found.Format == image.Qcow2

	switch {
	case !isDetected(role):
	case kind == api.ImageDisk && !isDisk:
		return invalid("the content is no image of a disk: it has neither a partition table nor the header of a qcow2").
			Do("give the image of a whole disk, or add it as a root file system if it is a tar archive")
	case kind == api.ImageRootFS && found.Format != image.Tar:
		return invalid("the content is no root file system: it is no tar archive").
			Do("give a tar archive, also compressed, or add it as a disk if it is the image of one")
	case kind == api.ImageKernel && found.Format != image.Deb:
		return invalid("the content is no kernel: it is no Debian package").
			Do("give the package of a kernel, linux-image-VERSION, as Debian has it")
	case kind == api.ImageKernel && found.Arch != arch:
		return invalid("the package is for %s, and the image for %s", inventory.Shorten(found.Arch, maxShown), arch).
			Do("remove the image, and add it with the architecture of the package: --arch")
	}

	return nil
}

// SPDX-License-Identifier: Apache-2.0

package api

import "time"

// Image is an image of the repository: what it is, and which instances have its content.
type Image struct {
	Name string    `json:"name"` // lower-case letters, digits, dots and dashes
	Kind ImageKind `json:"kind"` // `disk`, `rootfs`, `installer` or `kernel`
	Arch string    `json:"arch"` // `amd64` or `arm64`
	Boot string    `json:"boot"` // `bios`, `uefi` or `both`: the firmware that it boots with
	// The bytes that a disk must have: what was given, or the size of the disk in the image if that is more; 0: not
	// known.
	MinDisk     int64       `json:"min_disk"`
	Description string      `json:"description,omitempty"` // what it is for
	Files       []ImageFile `json:"files"`                 // by role
	State       ImageState  `json:"state"`                 // `complete` or `incomplete`
	Actor       string      `json:"actor"`                 // who added it
	Created     time.Time   `json:"created"`               // when
}

// ImageFile is a file of an image.
type ImageFile struct {
	Role   string `json:"role"`   // `image`, `kernel`, `initrd`, `kickstart`, `preseed`, `autoinstall` or `package`
	Digest string `json:"digest"` // `sha256:` and 64 hexadecimal digits
	Size   int64  `json:"size"`   // in bytes
	// What the content is, decompressed, once it has come: `raw`, `qcow2`, `tar`, `deb` or `data`.
	Format      string `json:"format,omitempty"`
	Compression string `json:"compression,omitempty"`  // `gzip`, `xz` or `zstd`
	VirtualSize int64  `json:"virtual_size,omitempty"` // the bytes of the disk in it; absent: not known
	// The instances that have the content, by their ids; none: it is missing.
	Instances []ImagePlace `json:"instances"`
	// The bytes that have come to the instance that answers; in the answer for a single image only.
	Received int64 `json:"received,omitempty"`
}

// ImagePlace is an instance that has content.
type ImagePlace struct {
	ID   string `json:"id"`   // of the instance
	Node string `json:"node"` // its host
}

// ImageKind is what an image is for.
type ImageKind string

// The kinds of image.
const (
	ImageDisk      ImageKind = "disk"      // a whole disk, with its partitions
	ImageRootFS    ImageKind = "rootfs"    // the files of a root file system
	ImageInstaller ImageKind = "installer" // the kernel and initrd of an installer, and its template
	ImageKernel    ImageKind = "kernel"    // the Debian package of a kernel, for the boot environment
)

// ImageState tells whether some instance has each file of an image.
type ImageState string

// The states of an image.
const (
	ImageComplete   ImageState = "complete"
	ImageIncomplete ImageState = "incomplete"
)

// ImageRequest adds an image, without its content.
type ImageRequest struct {
	Name        string             `json:"name"`                  // lower-case letters, digits, dots and dashes
	Kind        ImageKind          `json:"kind"`                  // `disk`, `rootfs`, `installer` or `kernel`
	Arch        string             `json:"arch"`                  // `amd64` or `arm64`
	Boot        string             `json:"boot"`                  // `bios`, `uefi` or `both`
	MinDisk     int64              `json:"min_disk,omitempty"`    // the bytes that a disk must have; 0: as in the image
	Description string             `json:"description,omitempty"` // what it is for: a line of at most 200 characters
	Files       []ImageFileRequest `json:"files"`                 // one for each role
}

// ImageFileRequest is a file of an image that is added.
type ImageFileRequest struct {
	// `image` of a disk or a root file system; `kernel`, `initrd` and one of `kickstart`, `preseed` and `autoinstall`
	// of an installer; `package` of a kernel.
	Role   string `json:"role"`
	Digest string `json:"digest"` // `sha256:` and 64 hexadecimal digits
	Size   int64  `json:"size"`   // in bytes
}

// ImageCheck is what a check of the content of an image on one instance has found.
type ImageCheck struct {
	Image string           `json:"image"` // the image
	Node  string           `json:"node"`  // the host of the instance
	Files []ImageFileCheck `json:"files"` // by role
}

// ImageFileCheck is what a check has found of a file.
type ImageFileCheck struct {
	Role   string `json:"role"`   // of the file
	Digest string `json:"digest"` // that it should have
	// `ok`; `damaged`: it was something else, and is removed from this instance; `missing`: it is not on this instance.
	Result string `json:"result"`
}

// The results of the check of a file.
const (
	ImageOK      = "ok"
	ImageDamaged = "damaged"
	ImageMissing = "missing"
)

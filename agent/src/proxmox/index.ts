/**
 * VMs of Proxmox VE as its archives describe them: text in, data out. The bytes of an archive are read by `appliance/vma/`; here is what its
 * `qemu-server.conf` says, as the same appliance that an OVF descriptor gives, so that all that comes after it is shared.
 *
 * An archive comes from anybody. A configuration that is no text is refused as a whole; whatever it says is replaced or left out with a
 * warning that names its key, or has a counterpart. Paths, devices and arguments of the other host are never taken over.
 */
export { type ArchiveContent, type ArchiveDevice, type ProxmoxVm, proxmoxVmOf } from './appliance.ts';

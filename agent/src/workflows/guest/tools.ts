/**
 * The guest tools image in a CD-ROM drive of a domain: put into a free drive, or into one that is added for it, in the running
 * domain and in its definition; and taken out again.
 */
import { access, constants, stat } from 'node:fs/promises';
import { Affect, type Domain, DomainXml, ErrorCode } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { errnoOf, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { type DiskConfig, type DomainConfig, parseDomain } from '../../domain-xml/index.ts';
import { isAnswer } from '../../libvirt/errors.ts';
import type { Workflow } from '../context.ts';
import { type GuestOperations, inDomain } from './domain.ts';
import { ADDED_DRIVE, type Drive, driveXml, freeDrive, holdsImage } from './drive.ts';

/**
 * libvirt waits five seconds for QEMU to give up a drive that was added, and says nothing when it did not: on a busy node it
 * comes later. So long the workflow looks for it to be gone, ms.
 */
const LET_GO_MS = 60_000;
const POLL_MS = 250;
/** QEMU's words. A guest that starts resets its drives, which closes the tray between libvirt's opening it and taking out what is in it. */
const TRAY_CLOSED = /Tray of device .* is not open/;
/** So long the tray may take to open and stay so, ms. */
const TRAY_MS = 60_000;

/** The workflow. Result: `{"target_dev","path"}`; of an image that is mounted already the same. */
export function attachTools(operations: GuestOperations, domainId: string): Workflow {
  return context =>
    inDomain(operations, domainId, context, async domain => {
      const { path, drive } = await context.step('check', async () => {
        const path = await requireImage(operations.toolsImage);
        const forms = await formsOf(domain);
        return { path, drive: freeDrive(forms.live, forms.definition, path) };
      });
      if (!drive.isMounted) await context.step('mount', () => place(domain, drive, path, context.signal));
      await context.step('verify', () => verify(domain, drive, path, context.signal));
      context.commit({ $case: 'attachGuestTools', value: { targetDev: drive.targetDev, path } });
    });
}

/** The workflow. Result: `{"target_dev"}`. */
export function detachTools(operations: GuestOperations, domainId: string): Workflow {
  return context =>
    inDomain(operations, domainId, context, async domain => {
      const path =
        operations.toolsImage ?? unavailable('no image is configured (guest.tools_image of the agent)');
      const drive = await context.step('check', async () => {
        const { live, definition } = await formsOf(domain);
        const holding = [live, definition]
          .flatMap(form => form?.disks ?? [])
          .find(disk => holdsImage(disk, path));
        if (!holding) unavailable('it is not mounted');
        const { targetDev, bus, alias } = holding;
        const has = (form: DomainConfig | null) =>
          form?.disks.some(disk => disk.targetDev === targetDev && holdsImage(disk, path)) ?? false;
        return {
          targetDev,
          bus,
          live: has(live),
          definition: has(definition),
          isNew: alias === ADDED_DRIVE,
          isMounted: true,
        };
      });
      await context.step('unmount', () => place(domain, drive, null, context.signal));
      await context.step('verify', () => verify(domain, drive, null, context.signal));
      context.commit({ $case: 'detachGuestTools', value: { targetDev: drive.targetDev } });
    });
}

function unavailable(reason: string): never {
  throw new VirtkeepError('guest_tools_unavailable', { reason });
}

async function requireImage(path: string | undefined): Promise<string> {
  if (path === undefined) unavailable('no image is configured (guest.tools_image of the agent)');
  try {
    if (!(await stat(path)).isFile()) unavailable(`${path} is no file`);
    await access(path, constants.R_OK);
  } catch (error) {
    if (error instanceof VirtkeepError) throw error;
    unavailable(errnoOf(error) === 'ENOENT' ? `${path} does not exist` : `${path}: ${reasonOf(error)}`);
  }
  return path;
}

async function formsOf(
  domain: Domain,
): Promise<{ live: DomainConfig | null; definition: DomainConfig | null }> {
  const [isActive, isPersistent] = await Promise.all([domain.isActive(), domain.isPersistent()]);
  const read = async (flags: number) => parseDomain(await domain.xml(flags), domain.name);
  return {
    live: isActive ? await read(0) : null,
    definition: isPersistent ? await read(DomainXml.INACTIVE) : null,
  };
}

/** Puts the image into the drive, or takes it out (null), a drive that was added with it, wherever the domain has that drive. */
async function place(domain: Domain, drive: Drive, path: string | null, signal: AbortSignal): Promise<void> {
  const flags = (drive.live ? Affect.LIVE : 0) | (drive.definition ? Affect.CONFIG : 0);
  const xml = driveXml(drive, path);
  const change = () => {
    if (!drive.isNew) return domain.updateDevice(xml, flags);
    return path === null ? domain.detachDevice(xml, flags) : domain.attachDevice(xml, flags);
  };
  const before = await mediaIn(domain, drive);
  for (const deadline = performance.now() + TRAY_MS; ; ) {
    try {
      return await change();
    } catch (error) {
      const reason = reasonOf(error);
      const isClosed = TRAY_CLOSED.test(reason);
      const isAwaited = !drive.isNew && isTrayAwaited(error);
      if (!(isClosed || isAwaited) || performance.now() > deadline) {
        const isHeld = isAwaited || (!isClosed && /tray|lock/i.test(reason));
        unavailable(`${reason}${isHeld ? '; the guest holds the medium, eject it there first' : ''}`);
      }
    }
    await sleep(POLL_MS, signal);
    const now = await mediaIn(domain, drive);
    // that it is empty or off by now is for libvirt to say
    if (now.some((medium, form) => medium && medium !== before[form] && medium !== path))
      unavailable(`somebody else changed what is in ${drive.targetDev}`);
  }
}

/**
 * A guest that locks the medium (udev does, of any) is asked to eject it, and libvirt waits five seconds for that; its words for it
 * are in the language of the node. Linux looks for such a wish every two seconds: on a busy node it comes later.
 */
const isTrayAwaited = (error: unknown): boolean => isAnswer(error, ErrorCode.OPERATION_FAILED);

/** What is in the drive: in the running domain, and by its definition; undefined where there is none. */
async function mediaIn(domain: Domain, { targetDev }: Drive): Promise<(string | undefined)[]> {
  return (await disksAt(domain, targetDev)).map(disk => disk?.source);
}

/** The drive holds in both forms what it should, or is gone; one that was added goes late. */
async function verify(
  domain: Domain,
  { targetDev, isNew }: Drive,
  path: string | null,
  signal: AbortSignal,
): Promise<void> {
  const deadline = performance.now() + (isNew && path === null ? LET_GO_MS : 0);
  while (!(await isRight(domain, targetDev, path))) {
    if (performance.now() > deadline) unavailable(`${targetDev} does not hold what it should afterwards`);
    await sleep(POLL_MS, signal);
  }
}

async function isRight(domain: Domain, targetDev: string, path: string | null): Promise<boolean> {
  const disks = await disksAt(domain, targetDev);
  return disks.every(disk => disk === undefined || (disk.path ?? null) === path);
}

/** What the running domain has there, and its definition. */
async function disksAt(domain: Domain, targetDev: string): Promise<(DiskConfig | undefined)[]> {
  const { live, definition } = await formsOf(domain);
  return [live, definition].map(form => form?.disks.find(disk => disk.targetDev === targetDev));
}

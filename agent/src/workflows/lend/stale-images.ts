/**
 * Images that QEMU has open although none of the domain's disks has them any more. libvirt 9.0 leaves them behind when a disk is asked for
 * in the moment in which QEMU takes it out: it counts the disk as gone at once, and cannot close the file yet. QEMU's lock on it then keeps
 * the owner's instant from being merged for as long as the borrower runs.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { Party } from './lender.ts';

/** As QEMU tells of it. */
interface BlockNode {
  'node-name': string;
  /** Path, of what is a file. */
  file: string;
}

/** libvirt's names of what it opens; nothing else is touched. */
const OURS = /^libvirt-\d+-(format|storage)$/;

/**
 * Closes those of a lender that a running borrower has open. To ask QEMU past libvirt marks the domain as tainted, so this is for when
 * something stands in the way.
 * @returns whether one was closed
 * @throws LibvirtError
 */
export async function closeStaleImages(borrower: Party, lender: Party, log: Logger): Promise<boolean> {
  if (!borrower.live) return false;
  const used = filesOf(borrower);
  const candidates = new Set([...filesOf(lender)].filter(path => !used.has(path)));
  const { domain } = borrower;
  const nodes = (await ask(domain, 'query-named-block-nodes', { flat: true })) as BlockNode[];
  const stale = nodes.filter(node => OURS.test(node['node-name']) && candidates.has(node.file));
  // what stands on a file goes before it
  stale.sort((a, b) => Number(isStorage(a)) - Number(isStorage(b)));
  for (const node of stale) {
    try {
      await ask(domain, 'blockdev-del', { 'node-name': node['node-name'] });
    } catch (error) {
      log.warn('an image that no disk has is still open', { domain: domain.uuid, reason: reasonOf(error) });
      return false;
    }
    log.warn('QEMU had an image open that no disk has, and has closed it', {
      domain: domain.uuid,
      node: node['node-name'],
      path: node.file,
    });
  }
  return stale.length > 0;
}

const isStorage = (node: BlockNode): boolean => node['node-name'].endsWith('-storage');

/** All files of its disks, as it runs and as it is defined. */
function filesOf({ live, config }: Party): Set<string> {
  const disks = [live, config].flatMap(one => one?.disks ?? []);
  const paths = disks.flatMap(({ path, backingChain = [] }) => [
    path,
    ...backingChain.map(layer => layer.path),
  ]);
  return new Set(paths.filter(path => path !== undefined));
}

/** @throws Error what QEMU refuses it for */
async function ask(domain: Domain, command: string, args: object): Promise<unknown> {
  const answer = JSON.parse(
    await domain.monitorCommand(JSON.stringify({ execute: command, arguments: args })),
  ) as { return?: unknown; error?: { desc: string } };
  if (answer.error) throw new Error(answer.error.desc);
  return answer.return;
}

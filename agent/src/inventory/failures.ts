import { isLibvirtError } from '@virtkeep/node-libvirt';
import { isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';

/** A libvirt error as the product's: `libvirt_unreachable` when the connection is what failed, else `libvirt_failed`. */
export function asLibvirtFailure(error: unknown, uri: string): VirtkeepError {
  if (isVirtkeepError(error)) return error;
  const reason = reasonOf(error);
  const kind = isLibvirtError(error) ? error.kind : undefined;
  if (kind === 'connection' || kind === 'closed' || kind === 'busy') {
    return new VirtkeepError('libvirt_unreachable', { uri, reason }, { cause: error });
  }
  const call = isLibvirtError(error) ? error.call : 'libvirt';
  return new VirtkeepError('libvirt_failed', { call, reason }, { cause: error });
}

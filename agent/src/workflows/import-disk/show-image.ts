import type { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { openImage } from './image-file.ts';

/**
 * What can be told of a disk image: it is of no VM. What it is stands in its record.
 * @throws VirtkeepError as `openImage`
 */
export async function showImage(path: string, signal: AbortSignal): Promise<ShowBackupResponse> {
  const { warnings, close } = await openImage(path, '', signal);
  await close();
  return {
    file: undefined,
    xml: '',
    configuration: undefined,
    systems: [],
    networks: [],
    warnings: warnings.map(text => ({ key: 'disk_image', text })),
    signature: { trust: 'foreign', signer: '', reason: 'only archives are signed', coversContent: false },
  };
}

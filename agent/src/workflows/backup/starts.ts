/**
 * Whether a VM that is copied as it lies stayed off. Its files tell themselves whether somebody wrote to them, and so do devices, of
 * which the kernel counts the writes. Of a device without such a count this is all that is known.
 */
import type { Libvirt } from '@virtkeep/node-libvirt';

export interface StartWatch {
  /** Completes "The domain is …", when it cannot be said that it stayed off. */
  doubt(): string | null;
  end(): void;
}

/** From now on. What was before is to be asked of libvirt afterwards, so that nothing comes between. */
export function watchStarts(libvirt: Libvirt, domainId: string): StartWatch {
  let doubt: string | null = null;
  // what happens while nobody listens is told to nobody
  const lost = () => {
    doubt ??= 'perhaps not off all the time (the connection to libvirt was lost meanwhile)';
  };
  if (!libvirt.connected) lost();
  const ends = [
    libvirt.on('lifecycle', ({ uuid, event }) => {
      if (uuid === domainId && event === 'started') doubt = 'not off any more: it was started meanwhile';
    }),
    libvirt.on('closed', lost),
  ];
  return {
    doubt: () => doubt,
    end: () => {
      for (const end of ends) end();
    },
  };
}

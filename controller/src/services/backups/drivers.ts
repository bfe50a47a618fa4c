import { VirtkeepError } from '@virtkeep/shared/errors';

interface DriverOptions {
  inject_drivers?: boolean | undefined;
  virtio?: boolean | undefined;
}

/** Drivers are put in for what the VM becomes. @throws conflicting_fields */
export function refuseDriversWithoutVirtio({ inject_drivers, virtio }: DriverOptions): void {
  if (!inject_drivers || virtio) return;
  const [first, second] = ['inject_drivers', 'virtio: false'];
  throw new VirtkeepError('conflicting_fields', { first, second, field: 'inject_drivers' });
}

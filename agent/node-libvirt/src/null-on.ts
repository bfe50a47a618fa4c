import { isLibvirtError } from './error.ts';

/** Turns libvirt's "there is none" error into null; every other error passes. */
export async function nullOn<T>(code: number, promise: Promise<T>): Promise<T | null> {
  try {
    return await promise;
  } catch (error) {
    if (isLibvirtError(error) && error.is(code)) return null;
    throw error;
  }
}

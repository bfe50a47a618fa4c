/** Oldest Node that runs TypeScript as it stands and is supported by the native modules. */
const OLDEST = [22, 18] as const;

/** Ends the process with a clear message when Node is too old; call it before anything native is loaded. */
export function requireSupportedNode(version: string = process.versions.node): void {
  if (isSupported(version)) return;
  process.stderr.write(
    `Node ${OLDEST.join('.')} or newer is needed, this is ${version} (${process.execPath}).\n`,
  );
  process.exit(78);
}

export function isSupported(version: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > OLDEST[0] || (major === OLDEST[0] && minor >= OLDEST[1]);
}

export const KiB = 1024;
export const MiB = 1024 * KiB;
export const GiB = 1024 * MiB;
export const TiB = 1024 * GiB;

/** "1.5 GiB": three significant digits, binary units; for people only. */
export function formatBytes(sizeBytes: number | bigint): string {
  let value = Number(sizeBytes);
  for (const unit of ['B', 'KiB', 'MiB', 'GiB', 'TiB']) {
    if (Math.abs(value) < 1024 || unit === 'TiB')
      return `${unit === 'B' ? value : value.toPrecision(3)} ${unit}`;
    value /= 1024;
  }
  return `${value}`;
}

/** Rounds up to the next multiple; `multiple` is positive. */
export function roundUp(value: number, multiple: number): number {
  return Math.ceil(value / multiple) * multiple;
}

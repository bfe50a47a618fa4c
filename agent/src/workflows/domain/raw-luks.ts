/** Its only file is a raw image, which the definition says is encrypted: whoever reads it gets ciphertext. */
export function isRawLuks({
  encrypted,
  layers,
}: {
  encrypted: boolean;
  layers: readonly { format?: string }[];
}): boolean {
  return encrypted && layers.length === 1 && layers[0]!.format === 'raw';
}

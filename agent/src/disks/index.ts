/** Disk images: what they are, what stands below them, and qemu-img's work on them. Knows neither domains nor pools. */
export { type Layer, readLayers } from './chain.ts';
export { diskId } from './disk-id.ts';
export { type FingerprintOptions, type FingerprintStore, fingerprintOf } from './fingerprint.ts';
export {
  backingChain,
  type CheckResult,
  type ConvertOptions,
  checkImage,
  convertImage,
  createImage,
  type ImageInfo,
  imageInfo,
  imagesEqual,
  rebaseUnsafe,
} from './image.ts';
export { type ImageHeader, readImageHeader } from './qcow2-header.ts';
export { qemuImg, type RunOptions } from './qemu-img.ts';
export { assertSelfContained } from './self-contained.ts';

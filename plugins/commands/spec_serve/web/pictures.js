// Pictures for models that see: files as data URLs, made smaller where they are large.

import { Refusal } from "./server.js";

const SIDE_MAX = 1280, BYTES_MAX = 400_000, FILES_MAX = 8;
const TYPES = ["image/png", "image/jpeg", "image/webp"];

/** Pictures of files: [{name, url}]. Throws Refusal for a file that is none. */
export function readPictures(files) {
  if (files.length > FILES_MAX) throw new Refusal(0, `At most ${FILES_MAX} pictures at once.`);
  return Promise.all(files.map(readPicture));
}

async function readPicture(file) {
  if (!TYPES.includes(file.type)) throw new Refusal(0, `${file.name} is not a PNG, JPEG or WEBP.`);
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Refusal(0, `${file.name} cannot be read as a picture.`);
  }
  const factor = Math.min(1, SIDE_MAX / Math.max(bitmap.width, bitmap.height));
  const url = factor === 1 && file.size <= BYTES_MAX ? await readUrl(file) : shrink(bitmap, factor);
  return { name: file.name.slice(0, 100) || "picture", url };
}

function readUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Refusal(0, `${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

function shrink(bitmap, factor) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * factor));
  canvas.height = Math.max(1, Math.round(bitmap.height * factor));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/jpeg", 0.9);
}

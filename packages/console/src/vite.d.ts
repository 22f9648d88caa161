/** Files that Vite puts into the script: the style sheet as text, an image as a data URL. */
declare module '*?inline' {
  const content: string;
  export default content;
}

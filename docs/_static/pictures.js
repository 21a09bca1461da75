// A picture leads to itself in full size, which a phone can enlarge.
document.addEventListener("DOMContentLoaded", () => {
  const pictures = ".bd-article p > img, .bd-article img.sphx-glr-single-img";
  for (const picture of document.querySelectorAll(pictures)) {
    const link = document.createElement("a");
    link.href = picture.src;
    picture.replaceWith(link);
    link.append(picture);
  }
});
